#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <turbojpeg.h>

#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/data/image_folder.h>
#include <belfry/frontends/data/images.h>
#include <belfry/frontends/data/text.h>
#include <belfry/frontends/files/files.h>

#include "says.h"

namespace belfry {
namespace {

using test::message_of;
namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("belfry_images_" + std::to_string(::getpid()))) { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

/// A smooth picture, so that compression keeps it.
std::string jpeg(int width, int height, int brightness = 0) {
  std::vector<unsigned char> pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) pixels.insert(pixels.end(), {static_cast<unsigned char>(brightness + 4 * x), static_cast<unsigned char>(5 * y), 100});
  unsigned char* out = nullptr;
  unsigned long size = 0;
  tjhandle encoder = tjInitCompress();
  EXPECT_EQ(tjCompress2(encoder, pixels.data(), width, 0, height, TJPF_RGB, &out, &size, TJSAMP_444, 98, 0), 0);
  std::string text(reinterpret_cast<char*>(out), size);
  tjFree(out);
  tjDestroy(encoder);
  return text;
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Jpeg, is_decoded_red_first) {
  std::string file = jpeg(40, 30);
  HostTensor x = decode_jpeg(bytes(file), "f.jpg");
  ASSERT_EQ(x.type(), (LocalType{u8, {30, 40, 3}}));
  auto at = [&](int row, int column, int colour) { return static_cast<int>(x.data<std::uint8_t>()[static_cast<std::size_t>(row * 40 + column) * 3 + static_cast<std::size_t>(colour)]); };
  EXPECT_NEAR(at(3, 30, 0), 120, 4);
  EXPECT_NEAR(at(20, 2, 1), 100, 4);
  EXPECT_NEAR(at(9, 9, 2), 100, 4);
}

TEST(Jpeg, that_is_none_or_is_cut_short_is_refused_by_name) {
  EXPECT_NE(message_of([] { decode_jpeg({}, "f.jpg"); }).find("f.jpg: cannot be read as a JPEG photo"), std::string::npos);
  EXPECT_NE(message_of([] { decode_jpeg(bytes("no photo at all"), "f.jpg"); }).find("f.jpg"), std::string::npos);
  std::string file = jpeg(40, 30);
  for (std::size_t size : {std::size_t{2}, file.size() / 4, file.size() / 2, file.size() - 30})
    EXPECT_NE(message_of([&] { decode_jpeg(bytes(file).first(size), "f.jpg"); }).find("f.jpg"), std::string::npos) << size;
}

/// 8 x 8 pixels of the middle value in so many components, each of which is scanned so often by itself.
std::string handmade_jpeg(int components, int scans) {
  std::string out = "\xff\xd8", one_code(17, '\0');
  auto segment = [&](char marker, const std::string& body) { out += {'\xff', marker, '\0', static_cast<char>(body.size() + 2)}, out += body; };
  one_code[0] = 1;  // a code of one bit for the symbol 0
  segment('\xdb', '\0' + std::string(64, '\1'));
  std::string frame = {8, 0, 8, 0, 8, static_cast<char>(components)};
  for (int c = 1; c <= components; ++c) frame += {static_cast<char>(c), 0x11, 0};
  segment('\xc0', frame);
  for (char table : {'\x00', '\x10'}) segment('\xc4', table + one_code);
  for (int s = 0; s < scans; ++s)
    for (int c = 1; c <= components; ++c) segment('\xda', {1, static_cast<char>(c), 0, 0, 63, 0}), out += '\x3f';
  return out + "\xff\xd9";
}

TEST(Jpeg, with_bytes_too_many_before_its_end_is_whole) {
  const std::string file = jpeg(40, 30), end = file.substr(file.size() - 2);
  EXPECT_EQ(decode_jpeg(bytes(file.substr(0, file.size() - 2) + std::string(64, 'a') + end), "f.jpg"), decode_jpeg(bytes(file), "f.jpg"));
  EXPECT_TRUE(test::says([&] { decode_jpeg(bytes(file.substr(0, file.size() - 60) + end), "f.jpg"); }, {"f.jpg: cannot be read as a JPEG photo", "premature end"}));
}

TEST(Jpeg, of_four_inks_becomes_red_green_and_blue) {
  const std::string file = handmade_jpeg(4, 1);
  const HostTensor x = decode_jpeg(bytes(file), "f.jpg");
  ASSERT_EQ(x.type(), (LocalType{u8, {8, 8, 3}}));
  for (int v : x.values<std::uint8_t>()) EXPECT_EQ(v, 64);  // 128 of 255 of the ink, under as much black
}

TEST(Jpeg, of_more_scans_than_pictures_have_is_refused) {
  const std::string few = handmade_jpeg(3, 1), many = handmade_jpeg(3, 200);
  EXPECT_EQ(decode_jpeg(bytes(few), "f.jpg").type(), (LocalType{u8, {8, 8, 3}}));
  EXPECT_TRUE(test::says([&] { decode_jpeg(bytes(many), "f.jpg"); }, {"f.jpg: cannot be read as a JPEG photo", "more than 500 scans"}));
}

TEST(Resize, has_pixel_centres_at_halves) {
  HostTensor x = HostTensor::of<float>({1, 4, 1}, {0, 1, 2, 3});
  EXPECT_EQ(resize_bilinear(x, 1, 4), x);
  EXPECT_EQ(resize_bilinear(x, 1, 2), HostTensor::of<float>({1, 2, 1}, {0.5f, 2.5f}));
  EXPECT_EQ(resize_bilinear(x, 1, 8), HostTensor::of<float>({1, 8, 1}, {0, 0.25f, 0.75f, 1.25f, 1.75f, 2.25f, 2.75f, 3}));
  EXPECT_EQ(resize_bilinear(x, 1, 1), HostTensor::of<float>({1, 1, 1}, {1.5f}));
  // Four to one: without antialias the two in the middle, with it all, the outer ones by a quarter as much.
  HostTensor peak = HostTensor::of<float>({4, 1, 1}, {8, 0, 0, 0});
  EXPECT_EQ(resize_bilinear(peak, 1, 1), HostTensor::of<float>({1, 1, 1}, {0}));
  EXPECT_NEAR(resize_bilinear(peak, 1, 1, true).item<float>(), 8 * (1 - 1.5 / 4) / (2 * (1 - 1.5 / 4) + 2 * (1 - 0.5 / 4)), 1e-6);
  EXPECT_NE(message_of([&] { resize_bilinear(x, 0, 3); }).find("at least 1 x 1, not 0 x 3"), std::string::npos);
}

TEST(ImageFolder, has_a_class_for_each_folder) {
  Folder folder;
  for (const char* name : {"train/dog/b.jpg", "train/dog/a.JPG", "train/cat/c.jpeg", "val/cat/x.jpg", "val/dog/y.jpg"}) {
    fs::create_directories((folder.path / name).parent_path());
    write_file(folder.path / name, jpeg(20, 10, name[6] == 'd' ? 80 : 0));
  }
  write_file(folder.path / "train/dog/notes.txt", "no photo");
  ImageFolder train = image_folder(folder.path / "train", {.height = 5, .width = 10});
  EXPECT_EQ(train.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(train.files, (std::vector<std::string>{"cat/c.jpeg", "dog/a.JPG", "dog/b.jpg"}));
  EXPECT_EQ(train.data.columns.at("label"), HostTensor::of<std::int32_t>({3}, {0, 1, 1}));
  EXPECT_EQ(train.data.columns.at("image").shape(), (Extents{3, 5, 10, 3}));
  for (float x : train.data.columns.at("image").data<float>()) ASSERT_LE(std::abs(x), 1);
  const DataWanted size{.height = 5, .width = 10};
  Splits both = data_folder(folder.path, size);
  EXPECT_EQ(both.train.columns, train.data.columns);
  EXPECT_EQ(both.test.rows(), 2);
  write_file(folder.path / "val/dog/z.jpg", "no photo");
  EXPECT_NE(message_of([&] { data_folder(folder.path, size); }).find("z.jpg: cannot be read as a photo: it is neither a JPEG nor a PNG file"), std::string::npos);
  fs::create_directories(folder.path / "train/fish");
  EXPECT_NE(message_of([&] { image_folder(folder.path / "train"); }).find("fish: no .jpg or .png in this class"), std::string::npos);
  EXPECT_NE(message_of([&] { image_folder(folder.path / "train/fish"); }).find("no folder of photos"), std::string::npos);
  EXPECT_NE(message_of([&] { image_folder(folder.path / "none"); }).find("cannot be listed"), std::string::npos);
}

TEST(ImageFolder, with_links_and_names_that_cannot_be_read_says_which) {
  Folder folder;
  for (const char* name : {"cat/a.jpg", "dog/b.jpg"}) {
    fs::create_directories((folder.path / name).parent_path());
    std::ofstream(folder.path / name, std::ios::binary) << jpeg(20, 12);
  }
  EXPECT_EQ(list_image_folder(folder.path).files, (std::vector<std::string>{"cat/a.jpg", "dog/b.jpg"}));
  for (const char* link : {"loop", "dog/loop.jpg"}) {
    fs::create_symlink(fs::path(link).filename(), folder.path / link);
    EXPECT_TRUE(test::says([&] { list_image_folder(folder.path); }, {"loop", "cannot be looked at", "remove it"})) << link;
    fs::remove(folder.path / link);
  }
  fs::create_directories(folder.path / "caf\xe9");
  EXPECT_TRUE(test::says([&] { list_image_folder(folder.path); }, {"caf\\xe9: the name of this class is not UTF-8", "rename the folder"}));
  fs::rename(folder.path / "caf\xe9", folder.path / "caf\xc3\xa9");
  std::ofstream(folder.path / "caf\xc3\xa9/c.jpg", std::ios::binary) << jpeg(20, 12);
  EXPECT_EQ(list_image_folder(folder.path).classes, (std::vector<std::string>{"caf\xc3\xa9", "cat", "dog"}));
}

TEST(Text, is_cut_into_windows_with_the_bytes_that_follow) {
  Folder folder;
  write_file(folder.path / "b.txt", "tail");
  write_file(folder.path / "a.txt", std::string(40, 'x') + "\xff");
  Splits data = data_folder(folder.path, {.length = 2});
  EXPECT_EQ(data.train.rows(), 20);
  EXPECT_EQ(data.test.rows(), 2);
  EXPECT_EQ(data.test.columns.at("tokens"), HostTensor::of<std::int32_t>({2, 2}, {255, 't', 'a', 'i'}));
  EXPECT_EQ(data.test.columns.at("targets"), HostTensor::of<std::int32_t>({2, 2}, {'t', 'a', 'i', 'l'}));
  EXPECT_NE(message_of([&] { data_folder(folder.path, {.length = 9}); }).find("45 bytes of text make 4 windows of 9"), std::string::npos);
  EXPECT_NE(message_of([&] { text_windows(folder.path / "none", 2); }).find("cannot be listed"), std::string::npos);
}

TEST(Cifar10, is_cut_to_its_middle_and_standardised) {
  Folder folder;
  std::string record(3073, '\0');
  record[0] = 7;
  for (int i = 0; i < 1024; ++i) record[1 + static_cast<std::size_t>(i)] = static_cast<char>(i % 32 * 4);  // red grows with the column
  write_file(folder.path / "data_batch_1.bin", record + record);
  EXPECT_NE(message_of([&] { data_folder(folder.path); }).find("no test_batch*.bin"), std::string::npos);
  record[0] = 2;
  write_file(folder.path / "test_batch.bin", record);
  Splits data = data_folder(folder.path);
  EXPECT_EQ(data.train.columns.at("label"), HostTensor::of<std::int32_t>({2}, {7, 7}));
  EXPECT_EQ(data.test.columns.at("label"), HostTensor::of<std::int32_t>({1}, {2}));
  auto x = data.test.columns.at("image").data<float>();
  double sum = 0, squares = 0;
  for (float v : x) sum += static_cast<double>(v), squares += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_NEAR(sum, 0, 1e-3);
  EXPECT_NEAR(squares / static_cast<double>(x.size()), 1, 1e-5);
  EXPECT_NEAR((x[3] - x[0]) / (x[6] - x[3]), 1, 1e-4);
  EXPECT_EQ(x[1], x[2]);
  EXPECT_LT(x[1], x[0]);
  write_file(folder.path / "test_batch.bin", record + "x");
  EXPECT_NE(message_of([&] { data_folder(folder.path); }).find("3074 bytes are no whole number of records of 3073"), std::string::npos);
  record[0] = 10;
  write_file(folder.path / "test_batch.bin", record);
  EXPECT_NE(message_of([&] { data_folder(folder.path); }).find("byte 0: 10 is no label of 0 to 9"), std::string::npos);
}

TEST(Jpeg, of_every_sampling_and_kind_is_read) {
  fs::path originals = fs::path(BELFRY_SHARED) / "data/pets-cats-dogs/original_jpegs";
  if (!fs::exists(originals)) GTEST_SKIP() << "no photos beside this source tree";
  int photos = 0;
  for (const auto& e : fs::recursive_directory_iterator(originals)) {
    if (e.path().extension() != ".jpg") continue;
    MappedFile file(e.path());
    EXPECT_GT(decode_jpeg(file.bytes(), e.path().string()).elements(), 10000) << e.path();
    ++photos;
  }
  EXPECT_EQ(photos, 10);
}

}  // namespace
}  // namespace belfry
