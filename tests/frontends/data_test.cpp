#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>

#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/data/digits.h>
#include <belfry/frontends/data/idx.h>
#include <belfry/frontends/data/mnist.h>

#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

DataSet counted(std::int64_t rows) {
  DataSet out;
  out.columns["x"] = HostTensor(f32, {rows, 2});
  out.columns["id"] = HostTensor(i64, {rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    out.columns["id"].data<std::int64_t>()[static_cast<std::size_t>(i)] = i;
    for (std::int64_t k : {0, 1}) out.columns["x"].data<float>()[static_cast<std::size_t>(2 * i + k)] = static_cast<float>(10 * i + k);
  }
  return out;
}

TEST(data_set, a_slice_holds_the_rows_of_every_column) {
  DataSet data = counted(5), part = data.slice(1, 3);
  EXPECT_EQ(data.rows(), 5);
  EXPECT_EQ(part.columns.at("id"), HostTensor::of<std::int64_t>({3}, {1, 2, 3}));
  EXPECT_EQ(part.columns.at("x"), HostTensor::of<float>({3, 2}, {10, 11, 20, 21, 30, 31}));
  EXPECT_EQ(data.slice(5, 0).rows(), 0);
  EXPECT_EQ(DataSet{}.rows(), 0);
}

TEST(data_set, rows_that_disagree_or_are_not_there_are_refused) {
  DataSet data = counted(5);
  for (auto [first, count] : {std::pair<std::int64_t, std::int64_t>{-1, 2}, {3, 3}, {0, -1}, {6, 0}, {1, INT64_MAX}}) EXPECT_THROW(data.slice(first, count), UserError) << first;
  data.columns["y"] = HostTensor(f32, {4});
  EXPECT_EQ(message_of([&] { data.rows(); }), "[data] column 'y' has 4 rows, but 'x' has 5");
  EXPECT_THROW(Batches(data, 2), UserError);
  data.columns["y"] = HostTensor::scalar(1.0f);
  EXPECT_EQ(message_of([&] { data.slice(0, 1); }), "[data] column 'y' is a scalar: it has no rows");
}

std::vector<std::int64_t> ids(const std::map<std::string, HostTensor>& batch) {
  auto span = batch.at("id").data<std::int64_t>();
  for (std::size_t i = 0; i < span.size(); ++i) EXPECT_EQ(batch.at("x").data<float>()[2 * i + 1], static_cast<float>(10 * span[i] + 1)) << "a row is torn apart";
  return {span.begin(), span.end()};
}

TEST(batches, the_last_one_is_shorter_and_tensors_are_reused) {
  DataSet data = counted(7);
  Batches batches(data, 3);
  EXPECT_EQ(batches.batches_per_epoch(), 3);
  const auto& first = batches.next();
  const std::byte* at = first.at("x").raw();
  EXPECT_EQ(ids(first), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(batches.position(), (DataPosition{0, 3}));
  EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{6}));
  EXPECT_EQ(batches.position(), (DataPosition{1, 0}));
  EXPECT_EQ(batches.next().at("x").raw(), at);
}

TEST(batches, full_ones_run_on_into_the_next_epoch) {
  DataSet data = counted(7);
  Batches batches(data, 5, {}, LastBatch::runs_on);
  EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{5, 6, 0, 1, 2}));
  EXPECT_EQ(batches.position(), (DataPosition{1, 3}));
  Batches shuffled(data, 5, 3, LastBatch::runs_on), large(data, 14, 3, LastBatch::runs_on);
  std::vector<std::int64_t> want = shuffled_rows(7, 3, 0), next = shuffled_rows(7, 3, 1), got;
  want.insert(want.end(), next.begin(), next.end());
  EXPECT_EQ(ids(large.next()), want);
  EXPECT_EQ(large.position(), (DataPosition{2, 0}));
  for (int i = 0; i < 2; ++i)
    for (std::int64_t id : ids(shuffled.next())) got.push_back(id);
  EXPECT_EQ(got, std::vector<std::int64_t>(want.begin(), want.begin() + 10));
}

TEST(batches, rows_that_make_no_whole_one_are_dropped) {
  DataSet data = counted(7);
  Batches batches(data, 3, {}, LastBatch::dropped);
  EXPECT_EQ(batches.batches_per_epoch(), 2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_EQ(ids(batches.next()), (std::vector<std::int64_t>{3, 4, 5}));
    EXPECT_EQ(batches.position(), (DataPosition{epoch + 1, 0}));
  }
  EXPECT_EQ(message_of([&] { Batches(data, 8, {}, LastBatch::dropped); }), "[data] 7 rows make no whole batch of 8, and shorter ones are dropped");
}

TEST(batches, made_columns_know_epoch_and_global_row_in_slices_and_shards) {
  DataSet data = counted(11);
  data.made["key"] = {{i64, {2}}, "the key", [](const RowKey& key, std::span<std::byte> out) {
                        const std::int64_t words[] = {key.epoch, key.row};
                        std::memcpy(out.data(), words, sizeof words);
                      }};
  EXPECT_EQ(data.types().at("key"), (LocalType{i64, {11, 2}}));
  for (const DataSet& part : {data, data.slice(3, 6), data.shard(1, 3), data.shard(2, 3).shard(0, 2), data.slice(2, 9).shard(1, 4)}) {
    Batches batches(part, 2, 9);
    for (int b = 0; b < 12; ++b) {
      const std::int64_t epoch = batches.position().epoch;
      const auto& batch = batches.next();
      for (std::size_t i = 0; i < batch.at("id").data<std::int64_t>().size(); ++i) {
        EXPECT_EQ(batch.at("key").data<std::int64_t>()[2 * i], epoch);
        EXPECT_EQ(batch.at("key").data<std::int64_t>()[2 * i + 1], batch.at("id").data<std::int64_t>()[i]);
      }
    }
  }
  EXPECT_EQ(data.shard(1, 3).columns.at("id"), HostTensor::of<std::int64_t>({4}, {1, 4, 7, 10}));
  EXPECT_EQ(data.shard(1, INT64_MAX).columns.at("id"), HostTensor::of<std::int64_t>({1}, {1}));
  EXPECT_EQ(message_of([&] { data.shard(3, 3); }), "[data] shard 3 of 3: shards are counted from 0");
  EXPECT_EQ(message_of([&] { data.shard(11, 12); }), "[data] shard 11 of 12 has none of the 11 rows");
  data.made["id"] = data.made["key"];
  EXPECT_EQ(message_of([&] { data.rows(); }), "[data] column 'id' is stored and made");
}

TEST(batches, an_epoch_gives_every_row_once_and_each_has_its_own_order) {
  DataSet data = counted(100);
  Batches batches(data, 32, 5);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::vector<std::int64_t> order;
    for (int i = 0; i < 4; ++i)
      for (std::int64_t id : ids(batches.next())) order.push_back(id);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 5u);
  EXPECT_NE(shuffled_rows(100, 5, 0), shuffled_rows(100, 6, 0));
}

TEST(batches, taken_up_at_any_step_they_go_on_as_if_never_stopped) {
  DataSet data = counted(23);
  using Choice = std::pair<std::optional<std::uint64_t>, LastBatch>;
  for (const auto& [seed, last] : {Choice{{}, LastBatch::shorter}, Choice{42, LastBatch::shorter}, Choice{42, LastBatch::runs_on}, Choice{42, LastBatch::dropped}}) {
    Batches whole(data, 5, seed, last);
    for (int step = 0; step < 12; ++step) {
      Batches resumed(data, 5, seed, last);
      resumed.seek(whole.position());
      std::vector<std::int64_t> expected = ids(whole.next());
      EXPECT_EQ(ids(resumed.next()), expected);
      EXPECT_EQ(resumed.position(), whole.position());
    }
  }
}

TEST(batches, every_permutation_is_equally_likely) {
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::int64_t epoch = 0; epoch < 24000; ++epoch) ++seen[shuffled_rows(4, 1, epoch)];
  ASSERT_EQ(seen.size(), 24u);
  double chi = 0;
  for (const auto& [order, n] : seen) chi += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi, 49.7) << "chi squared of 23 degrees of freedom, one chance in a thousand";
}

TEST(batches, the_order_of_a_seed_never_changes) { EXPECT_EQ(shuffled_rows(10, 7, 2), (std::vector<std::int64_t>{6, 1, 4, 7, 0, 3, 8, 5, 9, 2})); }

TEST(batches, sizes_and_places_that_are_none_are_refused) {
  DataSet data = counted(5), none = counted(0);
  EXPECT_THROW(Batches(data, 0), UserError);
  EXPECT_THROW(Batches(none, 1), UserError);
  Batches batches(data, 2);
  for (DataPosition p : {DataPosition{-1, 0}, {0, -1}, {0, 5}}) EXPECT_THROW(batches.seek(p), UserError);
  EXPECT_EQ(batches.position(), DataPosition{});
}

HostTensor parse(std::string_view text) { return parse_idx(std::as_bytes(std::span(text)), "f.idx"); }
std::string gzipped(const Folder& folder, std::string_view text) {
  gzFile file = gzopen((folder / "packed").c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return text_of(folder / "packed");
}

TEST(idx, big_endian_elements_of_every_type_are_read) {
  EXPECT_EQ(parse("\0\0\x08\x01\0\0\0\x03\x00\x07\xff"s), HostTensor::of<std::uint8_t>({3}, {0, 7, 255}));
  EXPECT_EQ(parse("\0\0\x0c\x01\0\0\0\x02\0\0\x01\x02\xff\xff\xff\xfe"s), HostTensor::of<std::int32_t>({2}, {258, -2}));
  EXPECT_EQ(parse("\0\0\x0d\x02\0\0\0\x01\0\0\0\x01\x3f\xc0\0\0"s), HostTensor::of<float>({1, 1}, {1.5f}));
  EXPECT_EQ(parse("\0\0\x0e\x01\0\0\0\x01\xc0\0\0\0\0\0\0\0"s), HostTensor::of<double>({1}, {-2.0}));
  EXPECT_EQ(parse("\0\0\x08\x03\0\0\0\x02\0\0\0\0\0\0\0\x05"s), HostTensor(u8, {2, 0, 5}));
}

TEST(idx, what_is_written_is_read_back_plain_and_packed) {
  Folder folder;
  for (const HostTensor& t : {HostTensor::of<std::uint8_t>({2, 1, 3}, {1, 2, 3, 4, 5, 6}), HostTensor::of<std::int32_t>({2}, {-1, 1 << 20}),
                              HostTensor::of<float>({1, 2}, {0.1f, -3e38f}), HostTensor::of<double>({1}, {1e-300})}) {
    write_idx(folder / "a", t);
    EXPECT_EQ(read_idx(folder / "a"), t);
    std::string plain = text_of(folder / "a"), packed = gzipped(folder, plain);
    EXPECT_EQ(parse(packed), t);
    EXPECT_EQ(parse(gzipped(folder, plain.substr(0, 5)) + gzipped(folder, plain.substr(5))), t) << "two gzip members";
    for (const std::string& name : folder.names()) EXPECT_EQ(name.find(".partial"), name.npos) << name;
  }
  EXPECT_THROW(write_idx(folder / "b", HostTensor(i64, {1})), UserError);
  EXPECT_THROW(write_idx(folder / "b", HostTensor::scalar(1.0f)), UserError);
  EXPECT_THROW(write_idx(folder / "no" / "b", HostTensor(u8, {1})), UserError);
  EXPECT_FALSE(fs::exists(folder / "b"));
}

TEST(idx, a_malformed_file_is_refused_by_name_and_byte) {
  Folder folder;
  const std::string good = "\0\0\x08\x02\0\0\0\x02\0\0\0\x02"
                           "abcd"s,
                    packed = gzipped(folder, good);
  const std::pair<std::string, std::string> cases[] = {
      {"", "f.idx, byte 0: is cut short"},
      {"\0\0\x08"s, "f.idx, byte 3: is cut short"},
      {"\1\0\x08\x01"s, "f.idx, byte 0: magic 0x01000801 is not that of IDX"},
      {"PK\3\4"s, "byte 0: magic 0x504b0304"},
      {"\0\0\x09\x01\0\0\0\0"s, "byte 2: IDX type 0x09 is not read here"},
      {"\0\0\x08\0"s, "byte 3: an IDX array of rank 0"},
      {good.substr(0, 11), "byte 11: is cut short in the sizes of its 2 axes"},
      {good.substr(0, 15), "byte 12: u8(2, 2) takes 4 bytes, but at most 3 follow"},
      {good + "e", "byte 16: bytes after the end of u8(2, 2)"},
      {"\0\0\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s, "more than 2^63 bytes"},
      {"\0\0\x08\x02\xff\xff\xff\xff\0\xff\xff\xff"s, "but at most 0 follow"},
      {gzipped(folder, "\0\0\x08\x02\xff\xff\xff\xff\0\xff\xff\xff"s), "follow: it is cut short"},
      {gzipped(folder, good.substr(0, 14)), "byte 14: u8(2, 2) takes 4 bytes, but 2 follow"},
      {gzipped(folder, good + "ef"), "byte 16: bytes after the end"},
      {packed + "x", "1 bytes after the end of the gzip data"},
      {packed.substr(0, packed.size() - 3), "is cut short"},
      {std::string(packed).replace(packed.size() - 6, 1, "?"), "the gzip file is damaged: incorrect data check"},
  };
  for (const auto& [text, wanted] : cases) {
    std::string said = message_of([&, &text = text] { parse(text); });
    EXPECT_NE(said.find(wanted), std::string::npos) << "wanted: " << wanted << "\nsaid:   " << said;
  }
  EXPECT_NE(message_of([&] { read_idx(folder / "none"); }).find("none: cannot read: No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { read_idx(folder.path()); }).find("it is a folder"), std::string::npos);
}

TEST(idx, a_packed_file_that_says_more_than_it_holds_gets_no_room_for_it) {
  Folder folder;
  std::string text = "\0\0\x08\x01\x0e\xe6\xb2\x80"s;  // 250 million bytes
  std::mt19937 rng(5);
  for (int i = 0; i < 300000; ++i) text += static_cast<char>(rng());
  const std::string packed = gzipped(folder, text);
  auto most = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  const long before = most();
  EXPECT_TRUE(says([&] { parse(packed); }, {"u8(250000000) takes 250000000 bytes, but 300000 follow: it is cut short"}));
  EXPECT_LT(most() - before, 100 << 10);
}

TEST(idx, random_damage_never_does_more_than_refuse) {
  Folder folder;
  const std::string good = "\0\0\x08\x02\0\0\0\x10\0\0\0\x10"s + std::string(256, 'x');
  std::mt19937 rng(3);
  for (const std::string& text : {good, gzipped(folder, good)}) {
    for (std::size_t n = 0; n < text.size(); ++n) EXPECT_THROW(parse(std::string_view(text).substr(0, n)), UserError) << n;
    for (int i = 0; i < 3000; ++i) {
      std::string bad = text;
      bad[rng() % std::min<std::size_t>(bad.size(), i % 2 ? 16 : 1000)] = static_cast<char>(rng());
      try {
        parse(bad);
      } catch (const UserError&) {
      }
    }
  }
}

TEST(mnist, the_real_files_give_the_known_images_and_labels) {
  fs::path dir = fs::path(BELFRY_SHARED) / "data/mnist";
  if (!fs::exists(dir)) GTEST_SKIP() << "no MNIST beside this source tree";
  Splits m = mnist(dir);
  EXPECT_EQ(m.train.rows(), 60000);
  EXPECT_EQ(m.test.rows(), 10000);
  EXPECT_EQ(m.train.columns.at("image").shape(), (Extents{60000, 28, 28, 1}));
  auto labels = m.train.columns.at("label").data<std::int32_t>();
  const int first[] = {5, 0, 4, 1, 9, 2, 1, 3, 1, 4};
  EXPECT_TRUE(std::equal(std::begin(first), std::end(first), labels.begin()));
  const int row[] = {3, 18, 18, 18, 126, 136, 175, 26, 166, 255, 247, 127};
  for (std::size_t i = 0; i < std::size(row); ++i) EXPECT_EQ(m.train.columns.at("image").data<float>()[5 * 28 + 12 + i], static_cast<float>(row[i]) / 255.0f);
  const int counts[] = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
  auto test = m.test.columns.at("label").data<std::int32_t>();
  for (int d = 0; d < 10; ++d) EXPECT_EQ(std::count(test.begin(), test.end(), d), counts[d]);
}

TEST(mnist, missing_and_unsuited_files_are_named) {
  Folder folder;
  draw_digits(folder.path(), 20, 10, 1);
  EXPECT_EQ(mnist(folder.path()).test.rows(), 10);
  auto with = [&](const char* name, const HostTensor& instead) {
    std::string kept = text_of(folder / name);
    write_idx(folder / name, instead);
    std::string said = message_of([&] { mnist(folder.path()); });
    write_text(folder / name, kept);
    return said;
  };
  EXPECT_NE(with("t10k-images-idx3-ubyte", HostTensor(u8, {10, 28, 27})).find("t10k-images-idx3-ubyte: u8(10, 28, 27) is not u8(n, 28, 28)"), std::string::npos);
  EXPECT_NE(with("t10k-labels-idx1-ubyte", HostTensor(f32, {10})).find("t10k-labels-idx1-ubyte: f32(10) is not u8(n)"), std::string::npos);
  EXPECT_NE(with("t10k-images-idx3-ubyte", HostTensor(u8, {0, 28, 28})).find("t10k-images-idx3-ubyte: holds no images"), std::string::npos);
  EXPECT_NE(with("t10k-labels-idx1-ubyte", HostTensor(u8, {9})).find("holds 10 images, but"), std::string::npos);
  EXPECT_NE(with("t10k-labels-idx1-ubyte", HostTensor::of<std::uint8_t>({2}, {9, 10})).find("label 1: 10 is no digit"), std::string::npos);
  write_text(folder / "train-images-idx3-ubyte.gz", gzipped(folder, text_of(folder / "train-images-idx3-ubyte")));
  fs::remove(folder / "train-images-idx3-ubyte");
  EXPECT_EQ(mnist(folder.path()).train.rows(), 20);
  fs::remove(folder / "train-images-idx3-ubyte.gz");
  fs::remove(folder / "t10k-labels-idx1-ubyte");
  EXPECT_NE(message_of([&] { mnist(folder.path()); }).find("no train-images-idx3-ubyte, t10k-labels-idx1-ubyte, with or without .gz"), std::string::npos);
}

TEST(digits, a_digit_depends_on_seed_stream_and_place_alone) {
  Digits few = drawn_digits(20, 1), more = drawn_digits(50, 1);
  EXPECT_TRUE(std::ranges::equal(few.images.bytes(), more.images.bytes().first(few.images.bytes().size())));
  EXPECT_NE(drawn_digits(20, 2).images, few.images);
  EXPECT_NE(drawn_digits(20, 1, 1).images, few.images);
  for (int d = 0; d < 10; ++d) EXPECT_EQ(std::ranges::count(more.labels.data<std::uint8_t>(), d), 5);
  EXPECT_EQ(XXH3_64bits(more.images.raw(), more.images.bytes().size()), 15377797739937197341u) << "the same bytes on every machine";
}

TEST(digits, are_drawn_alike_whatever_rounding_and_traps_the_caller_has_set) {
  const Digits want = drawn_digits(20, 1);
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_DOWNWARD);
  std::feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_INEXACT);
  const Digits drawn = drawn_digits(20, 1);
  const int traps = fegetexcept();
  std::fesetenv(&before);
  EXPECT_EQ(traps, FE_INEXACT);
  EXPECT_EQ(drawn.images, want.images);
}

/// Right answers of the nearest class mean: a picture of how far apart and how varied the classes are.
TEST(digits, the_classes_are_told_apart_but_not_by_their_means_alone) {
  Digits train = drawn_digits(2000, 1, 0), test = drawn_digits(500, 1, 1);
  auto pixels = train.images.data<std::uint8_t>(), seen = test.images.data<std::uint8_t>();
  std::vector<double> mean(10 * 784, 0);
  for (std::size_t i = 0; i < pixels.size(); ++i) mean[train.labels.data<std::uint8_t>()[i / 784] * 784u + i % 784] += pixels[i] / 200.0;
  int right = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    std::array<double, 10> distance{};
    int inked = 0;
    for (std::size_t k = 0; k < 784; ++k) {
      inked += seen[i * 784 + k] > 100;
      for (std::size_t d = 0; d < 10; ++d) distance[d] += (seen[i * 784 + k] - mean[d * 784 + k]) * (seen[i * 784 + k] - mean[d * 784 + k]);
    }
    EXPECT_GT(inked, 15) << "digit " << i << " is empty";
    EXPECT_LT(inked, 300) << "digit " << i << " is a blot";
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == test.labels.data<std::uint8_t>()[i];
  }
  EXPECT_GT(right, 300);
  EXPECT_LT(right, 450);
  std::printf("nearest class mean: %d of 500\n", right);
}

TEST(digits, counts_and_folders_that_are_none_are_refused) {
  Folder folder;
  write_text(folder / "file", "");
  EXPECT_THROW(draw_digits(folder.path(), 0, 1, 1), UserError);
  EXPECT_THROW(draw_digits(folder / "file", 1, 1, 1), UserError);
  // Over digits that were drawn, and over no others.
  draw_digits(folder.path(), 15, 10, 1);
  draw_digits(folder.path(), 12, 10, 2);
  EXPECT_EQ(mnist(folder.path()).train.rows(), 12);
  write_idx(folder / "t10k-labels-idx1-ubyte", HostTensor::of<std::uint8_t>({3}, {7, 2, 7}));
  EXPECT_NE(message_of([&] { draw_digits(folder.path(), 5, 5, 1); }).find("has other images of this form"), std::string::npos);
  fs::remove(folder / "t10k-labels-idx1-ubyte");
  write_text(folder / "train-images-idx3-ubyte.gz", "");
  EXPECT_NE(message_of([&] { draw_digits(folder.path(), 5, 5, 1); }).find("train-images-idx3-ubyte.gz"), std::string::npos);
}

}  // namespace
}  // namespace belfry::test
