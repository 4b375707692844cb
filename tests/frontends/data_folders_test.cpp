#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include <png.h>

#include <belfry/frontends/data/arrays.h>
#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/data/digits.h>
#include <belfry/frontends/data/images.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/data/pictures.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/npy.h>

#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

namespace fs = std::filesystem;

/// A PNG of one of libpng's formats; for PNG_FORMAT_RGB_COLORMAP `pixels` are places in the map.
std::string png_of(int width, int height, std::uint32_t format, const void* pixels, const void* map = nullptr, unsigned entries = 0) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = format;
  image.colormap_entries = entries;
  png_alloc_size_t size = 0;
  EXPECT_TRUE(png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, map)) << image.message;
  std::string out(size, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&image, out.data(), &size, 0, pixels, 0, map)) << image.message;
  out.resize(size);
  return out;
}
HostTensor decoded(const std::string& file) { return decode_photo(std::as_bytes(std::span(file)), "f.png"); }

/// A folder of photos of 6 x 5, class by class, in which each pixel says its photo.
void write_photos(const fs::path& root, int photos) {
  for (int i = 0; i < photos; ++i) {
    std::vector<std::uint8_t> pixels(6 * 5 * 3);
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<std::uint8_t>(10 * i + 3 * static_cast<int>(k % 3) + static_cast<int>(k / 18));
    const fs::path dir = root / (i % 2 ? "dog" : "cat");
    fs::create_directories(dir);
    write_file(dir / (std::to_string(i) + ".png"), png_of(6, 5, PNG_FORMAT_RGB, pixels.data()));
  }
}

TEST(Png, of_every_kind_becomes_bytes_of_three_colours) {
  const std::uint8_t rgb[] = {1, 2, 3, 250, 251, 252, 0, 128, 64, 9, 8, 7}, grey_bytes[] = {0, 100, 200, 255}, places[] = {0, 1, 1, 0};
  EXPECT_EQ(decoded(png_of(2, 2, PNG_FORMAT_RGB, rgb)), HostTensor::of<std::uint8_t>({2, 2, 3}, rgb));
  EXPECT_EQ(decoded(png_of(2, 2, PNG_FORMAT_GRAY, grey_bytes)), HostTensor::of<std::uint8_t>({2, 2, 3}, {0, 0, 0, 100, 100, 100, 200, 200, 200, 255, 255, 255}));
  const std::uint8_t clear[] = {1, 2, 3, 0, 4, 5, 6, 255};
  EXPECT_EQ(decoded(png_of(2, 1, PNG_FORMAT_RGBA, clear)), HostTensor::of<std::uint8_t>({1, 2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decoded(png_of(2, 2, PNG_FORMAT_RGB_COLORMAP, places, rgb, 2)), HostTensor::of<std::uint8_t>({2, 2, 3}, {1, 2, 3, 250, 251, 252, 250, 251, 252, 1, 2, 3}));
  // Pillow: Image.fromarray([[[200, 30, 7], [1, 2, 3]], [[255, 255, 255], [0, 128, 64]]]).convert("L")
  EXPECT_EQ(grey(HostTensor::of<std::uint8_t>({2, 2, 3}, {200, 30, 7, 1, 2, 3, 255, 255, 255, 0, 128, 64})), HostTensor::of<std::uint8_t>({2, 2, 1}, {78, 2, 255, 82}));
}

TEST(Png, that_is_damaged_is_refused_by_name) {
  std::vector<std::uint8_t> pixels(3 * 40 * 30, 77);
  const std::string good = png_of(40, 30, PNG_FORMAT_RGB, pixels.data());
  for (std::size_t size = 4; size < good.size(); ++size) EXPECT_NE(message_of([&] { decoded(good.substr(0, size)); }).find("f.png: cannot be read as a PNG photo"), std::string::npos) << size;
  for (std::size_t at = 4; at < good.size() - 12; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    try {
      decoded(bad);  // what is not critical may be anything
    } catch (const UserError&) {
    }
  }
  std::string huge = good;
  huge.replace(16, 4, std::string("\0\x10\0\0", 4));
  EXPECT_NE(message_of([&] { decoded(huge); }).find("f.png: cannot be read"), std::string::npos);
}

TEST(ImageFolders, that_are_held_out_have_the_labels_of_those_to_train_on) {
  Folder folder;
  write_photos(folder / "train", 4);
  write_photos(folder / "val", 4);
  fs::remove_all(folder / "val" / "cat");
  const ImageFolder held = list_image_folder(folder / "val", {}, list_image_folder(folder / "train").classes);
  EXPECT_EQ(held.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(held.data.columns.at("label"), HostTensor::of<std::int32_t>({2}, {1, 1}));
  fs::rename(folder / "val" / "dog", folder / "val" / "wolf");
  EXPECT_NE(message_of([&] { list_image_folder(folder / "val", {}, {"cat", "dog"}); }).find("'wolf' is no class that is trained on; those are cat, dog"), std::string::npos);
}

TEST(ImageFolders, hold_out_photos_by_their_names_whatever_else_lies_there) {
  Folder folder;
  auto part = [&](bool taken) { return list_image_folder(folder.path(), {}, {"cat", "dog"}, {.fraction = 0.25, .taken = taken}).files; };
  for (const char* name : {"cat", "dog"}) {
    fs::create_directories(folder / name);
    for (int k = 0; k < 100; ++k) write_file(folder / name / (std::to_string(k) + ".jpg"), "not read");
  }
  const std::vector<std::string> held = part(true), others = part(false);
  EXPECT_EQ(held.size() + others.size(), 200u);
  EXPECT_NEAR(static_cast<double>(held.size()), 50, 20);
  for (const std::string& f : held) EXPECT_EQ(std::count(others.begin(), others.end(), f), 0) << f;
  write_file(folder / "cat/added.jpg", "not read");
  std::vector<std::string> now = part(true);
  std::erase(now, "cat/added.jpg");
  EXPECT_EQ(now, held);
}

TEST(ImageFolders, are_distorted_alike_whether_photos_are_kept_or_read_anew) {
  Folder folder;
  write_photos(folder / "train", 7);
  write_photos(folder / "val", 2);
  const Distortions d{.shear = 10, .zoom = 0.2, .crop = 2, .flip = true, .seed = 4};
  ImageFolderOptions options{.height = 4, .width = 3, .rescale = {1.0 / 255, 0}, .distortions = d};
  const ImageFolder kept = image_folder(folder / "train", options);
  options.most_bytes = 0;
  const ImageFolder anew = image_folder(folder / "train", options);
  options.shard = {1, 2};
  const ImageFolder second = image_folder(folder / "train", options);
  EXPECT_EQ(kept.data.types().at("image"), (LocalType{f32, {7, 4, 3, 3}}));
  EXPECT_EQ(second.files, (std::vector<std::string>{"cat/2.png", "cat/6.png", "dog/3.png"}));
  EXPECT_EQ(second.data.columns.at("label"), HostTensor::of<std::int32_t>({3}, {0, 0, 1}));
  Batches a(kept.data, 7), b(anew.data, 7), c(second.data, 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const HostTensor all = a.next().at("image"), same = b.next().at("image"), some = c.next().at("image");
    EXPECT_EQ(all, same);
    for (std::size_t k = 0; k < 3; ++k) EXPECT_TRUE(std::ranges::equal(all.data<float>().subspan((2 * k + 1) * 36, 36), some.data<float>().subspan(k * 36, 36))) << k;
    for (float x : all.data<float>()) ASSERT_TRUE(x >= 0 && x <= 75 / 255.0f);
  }
  // Without distortions photos that are not kept are what they are else.
  options = {.height = 4, .width = 3, .channels = 1};
  const HostTensor stored = image_folder(folder / "train", options).data.columns.at("image");
  options.most_bytes = 10;
  const DataSet made = image_folder(folder / "train", options).data;
  EXPECT_EQ(Batches(made, 7).next().at("image"), stored);
  EXPECT_EQ(stored.shape(), (Extents{7, 4, 3, 1}));
  // Another photo among them is other data for checkpoints.
  auto source = [](const DataSet& data) { return data.made.at("image").source(); };
  EXPECT_EQ(source(anew.data), source(kept.data));
  EXPECT_EQ(source(made), source(kept.data));
  write_file(folder / "train/cat/4.png", read_file(folder / "train/cat/4.png") + "x");
  EXPECT_NE(source(image_folder(folder / "train", options).data), source(made));
  // It is computed when it is asked for, and once.
  const DataSet unasked = image_folder(folder / "train", options).data;
  write_file(folder / "train/cat/4.png", read_file(folder / "train/cat/4.png") + "y");
  const std::uint64_t asked = source(unasked);
  EXPECT_EQ(asked, source(image_folder(folder / "train", options).data));
  write_file(folder / "train/cat/4.png", read_file(folder / "train/cat/4.png") + "z");
  EXPECT_EQ(source(unasked.shard(0, 2)), asked);
  const Splits both = data_folder(folder.path(), {.height = 4, .width = 3, .distortions = d, .shard = {0, 7}});
  EXPECT_EQ(both.train.rows(), 1);
  EXPECT_EQ(both.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(photo_classes(folder.path(), {}), both.classes);
  EXPECT_EQ(data_folder(folder / "val", {.height = 4, .width = 3, .all_to_test = true}).classes, both.classes);
  EXPECT_EQ(both.test.columns.at("image").shape(), (Extents{2, 4, 3, 3}));
  const DataWanted wanted{.height = 4, .width = 3, .channels = 1};
  EXPECT_EQ(read_pictures(picture_files({folder / "val"}), {4, 3, 1}, pixels_of(folder.path(), wanted).value()), data_folder(folder.path(), wanted).test.columns.at("image"));
}

TEST(Cifar10, is_distorted_in_windows_and_keeps_its_test_images) {
  Folder folder;
  std::string record(3073, '\0'), file;
  for (int i = 0; i < 4; ++i) {
    record[0] = static_cast<char>(i);
    for (int k = 0; k < 3072; ++k) record[1 + static_cast<std::size_t>(k)] = static_cast<char>((k * (i + 3)) % 251);
    file += record;
  }
  write_file(folder / "data_batch_1.bin", file);
  write_file(folder / "test_batch.bin", file);
  const Splits plain = cifar10(folder.path()), distorted = cifar10(folder.path(), {.distortions = cifar10_distortions(3)});
  EXPECT_EQ(plain.test.columns, distorted.test.columns);
  EXPECT_EQ(plain.train.columns, plain.test.columns);
  EXPECT_EQ(distorted.train.types(), plain.train.types());
  // A window without any change but its place is the middle of the record.
  const Splits still = cifar10(folder.path(), {.distortions = Distortions{}});
  EXPECT_EQ(Batches(still.train, 4).next().at("image"), plain.train.columns.at("image"));
  const HostTensor bytes = cifar10_bytes(folder.path()).train.columns.at("image");
  EXPECT_EQ(bytes.data<std::uint8_t>()[2 * 3072 + 3 * 33 + 1], (1024 + 33) * 5 % 251) << "green of the third image, row 1, column 1";
  Batches batches(distorted.train, 4);
  for (float x : batches.next().at("image").data<float>()) ASSERT_LT(std::abs(x), 6);
  EXPECT_NE(message_of([&] { cifar10(folder.path(), {.size = 30, .distortions = cifar10_distortions()}); }).find("images of 30 x 30 with crop=8 are not in 32 x 32"), std::string::npos);
  // What comes later is treated as what was held out: bits.
  const Pixels pixels = pixels_of(folder.path(), {}).value();
  EXPECT_EQ(pictures_of(bytes, {24, 24, 3}, pixels), plain.test.columns.at("image"));
  EXPECT_NE(message_of([&] { pictures_of(bytes, {20, 24, 1}, pixels); }).find("do not fit: u8 (n, 32, 32, 1) is expected"), std::string::npos);
  EXPECT_NE(message_of([&] { pictures_of(HostTensor(u8, {24, 24, 3}), {24, 24, 3}, pixels); }).find("add the axis of rows"), std::string::npos);
  EXPECT_NE(message_of([&] { pictures_of(HostTensor(u8, {5, 3, 24, 24}), {24, 24, 3}, pixels); }).find("channels come last"), std::string::npos);
  write_file(folder / "batches.meta.txt", "airplane\nautomobile\n\n");
  EXPECT_EQ(data_folder(folder.path()).classes, (std::vector<std::string>{"airplane", "automobile"}));
}

TEST(Mnist, is_distorted_too) {
  Folder folder;
  draw_digits(folder.path(), 20, 10, 1);
  const Splits plain = data_folder(folder.path()), still = data_folder(folder.path(), {.distortions = Distortions{}});
  const HostTensor same = Batches(still.train, 20).next().at("image");
  for (std::size_t i = 0; i < same.data<float>().size(); ++i) ASSERT_NEAR(same.data<float>()[i], plain.train.columns.at("image").data<float>()[i], 1e-7);
  EXPECT_EQ(pictures_of(mnist_bytes(folder.path()).test.columns.at("image"), {28, 28, 1}, pixels_of(folder.path(), {}).value()), plain.test.columns.at("image"));
  EXPECT_NE(message_of([&] { data_folder(folder.path(), {.rescale = Rescale{}}); }).find("MNIST is scaled as it always is"), std::string::npos);
}

TEST(Mnist, is_brought_to_an_input_without_an_axis_of_channels) {
  Folder folder;
  draw_digits(folder.path(), 20, 10, 1);
  const Splits data = data_folder(folder.path(), {.inputs = {{"image", {f32, {28, 28}}}, {"label", {i64, {}}}}}), plain = data_folder(folder.path());
  EXPECT_EQ(data.train.types().at("image"), (LocalType{f32, {20, 28, 28}}));
  EXPECT_EQ(data.test.columns.at("label").dtype(), i64);
  EXPECT_EQ(data.test.columns.at("image").values<float>(), plain.test.columns.at("image").values<float>());
}

const InputRows kInputs = {{"image", {f32, {2, 2, 1}}}, {"label", {i32, {}}}};

TEST(Arrays, of_every_packing_give_the_same_columns) {
  Folder folder;
  const HostTensor image = HostTensor::of<std::uint8_t>({3, 2, 2}, {0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6}), label = HostTensor::of<std::int64_t>({3}, {2, 0, 1});
  write_npz(folder / "packed.npz", {{"x_train", image}, {"y_train", label}, {"x_test", image}, {"y_test", label}});
  for (const char* part : {"train", "test"}) {
    fs::create_directories(folder / "npz");
    write_npz(folder / "npz" / (part + std::string(".npz")), {{"image", image}, {"label", label}});
    fs::create_directories(folder / "npy" / part);
    write_npy(folder / "npy" / part / "image.npy", image);
    write_npy(folder / "npy" / part / "label.npy", label);
  }
  for (const char* name : {"packed.npz", "npz", "npy"}) {
    const Splits data = data_folder(folder / name, {.inputs = kInputs});
    EXPECT_EQ(data.train.columns, data.test.columns);
    EXPECT_EQ(data.train.columns.at("image"), HostTensor::of<float>({3, 2, 2, 1}, {0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6})) << name;
    EXPECT_EQ(data.train.columns.at("label"), HostTensor::of<std::int32_t>({3}, {2, 0, 1})) << name;
  }
  const Splits scaled = data_folder(folder / "npz", {.rescale = Rescale{1.0 / 255, 0}, .shard = {1, 2}, .inputs = kInputs});
  EXPECT_EQ(scaled.train.columns.at("image"), HostTensor::of<float>({1, 2, 2, 1}, {0.8f, 1, 1 / 255.0f, 2 / 255.0f}));
  EXPECT_EQ(scaled.test.rows(), 3);
  const Splits distorted = data_folder(folder / "npz", {.distortions = Distortions{.flip = true}, .inputs = kInputs});
  EXPECT_EQ(distorted.train.types().at("image"), (LocalType{f32, {3, 2, 2, 1}}));
  EXPECT_EQ(distorted.test.columns.at("image").dtype(), f32);
}

TEST(Arrays, that_do_not_fit_are_refused) {
  Folder folder;
  const HostTensor rows = HostTensor::of<float>({2, 1}, {1, 2.5f});
  write_npz(folder / "a.npz", {{"x", rows}});
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz"); }).find("a.npz: comes in one part, with no rows to test on"), std::string::npos);
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz", {.hold_out = 0.001}); }).find("of so few rows 0.001 holds none out"), std::string::npos);
  write_npz(folder / "a.npz", {{"x", rows}, {"y_train", rows}});
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz"); }).find("'x' is neither NAME_train nor NAME_test"), std::string::npos);
  write_npz(folder / "a.npz", {{"x_train", rows}, {"x_test", HostTensor::of<float>({0}, {})}});
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz"); }).find("a.npz: holds no rows"), std::string::npos);
  const HostTensor nothing(f32, {std::int64_t{1} << 40, 0, 2});
  write_npz(folder / "a.npz", {{"x_train", nothing}, {"x_test", nothing}});
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz"); }).find("a.npz: [data] column 'x' is f32(1099511627776, 0, 2): its rows hold nothing"), std::string::npos);
  write_npz(folder / "a.npz", {{"x", nothing}});
  EXPECT_NE(message_of([&] { data_folder(folder / "a.npz", {.hold_out = 0.25}); }).find("its rows hold nothing"), std::string::npos);
  write_npz(folder / "train.npz", {{"label", rows}, {"x", HostTensor(f32, {3})}});
  EXPECT_NE(message_of([&] { data_folder(folder.path()); }).find("train.npz: [data] column 'x' has 3 rows, but 'label' has 2"), std::string::npos);
  write_npz(folder / "train.npz", {{"label", rows}});
  EXPECT_NE(message_of([&] { data_folder(folder.path()); }).find("comes in one part, with no rows to test on: hold some out"), std::string::npos);
  write_npz(folder / "test.npz", {{"label", rows}});
  EXPECT_NE(message_of([&] { data_folder(folder.path(), {.inputs = kInputs}); }).find("column 'label' holds 2.5, which is no i32"), std::string::npos);
  for (const char* part : {"train.npz", "test.npz"}) write_npz(folder / part, {{"label", HostTensor::of<float>({2, 1}, {1, 2})}});
  EXPECT_NE(message_of([&] { data_folder(folder.path(), {.distortions = Distortions{}, .inputs = kInputs}); }).find("there is no column 'image' of u8"), std::string::npos);
  fs::create_directories(folder / "none");
  EXPECT_NE(message_of([&] { data_folder(folder / "none"); }).find("none: no data that are known. Read are MNIST's"), std::string::npos);
}

TEST(Arrays, in_one_part_have_rows_held_out_by_their_numbers) {
  Folder folder;
  auto held = [&](std::int64_t rows) {
    HostTensor x(f32, {rows, 2});
    std::iota(x.data<float>().begin(), x.data<float>().end(), 0.0f);
    write_npz(folder / "a.npz", {{"x", x}});
    const Splits data = data_folder(folder / "a.npz", {.hold_out = 0.25});
    EXPECT_EQ(data.train.rows() + data.test.rows(), rows);
    std::set<float> out;
    for (float v : data.test.columns.at("x").data<float>()) out.insert(v);
    for (float v : data.train.columns.at("x").data<float>()) EXPECT_FALSE(out.contains(v)) << v;
    return out;
  };
  const std::set<float> few = held(200), more = held(300);
  EXPECT_NEAR(static_cast<double>(few.size()), 2 * 50, 2 * 20);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), few.begin(), few.end()));
  EXPECT_EQ(data_folder(folder / "a.npz", {.all_to_test = true}).test.rows(), 300);
}

}  // namespace
}  // namespace belfry::test
