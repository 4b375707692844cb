#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/data/distort.h>

#include "says.h"

namespace belfry {
namespace {

using test::message_of;

std::vector<float> changed(const std::vector<float>& from, const PictureSize& size, const Changes& changes, const PictureSize& window) {
  std::vector<float> out(window.elements());
  change(from, size, changes, window, out);
  return out;
}

TEST(Distort, shear_and_zoom_are_those_of_keras) {
  std::vector<float> x;
  for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(i * i % 37));
  // scipy.ndimage.affine_transform(x, matrix, offset, order=1, mode='nearest'), where matrix = [[1, -sin 20°], [0, cos 20°]] · diag(0.8, 1.3)
  // and offset = centre - matrix · centre, which is what apply_affine_transform(x, shear=20, zx=0.8, zy=1.3) calls.
  const float wanted[] = {25.189252853393555f, 25.190221786499023f, 6.400000095367432f,  10.551202774047852f, 16.0f,              25.9892520904541f, 22.660728454589844f,
                          14.100000381469727f, 18.42669105529785f,  14.103271484375f,    7.847195625305176f,  18.227277755737305f, 30.899999618530273f, 20.844860076904297f,
                          7.042990684509277f,  3.0f,                27.130388259887695f, 30.899999618530273f, 21.137521743774414f, 10.242990493774414f};
  const PictureSize size{4, 5, 1};
  const std::vector<float> got = changed(x, size, {.shear = 20, .zoom_rows = 0.8, .zoom_columns = 1.3}, size);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << i;
  // A window of it, from right to left, is what a crop and a flip make of the whole.
  const std::vector<float> part = changed(x, size, {.shear = 20, .zoom_rows = 0.8, .zoom_columns = 1.3, .top = 1, .left = 2, .flipped = true}, {2, 3, 1});
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(part[r * 3 + c], got[(r + 1) * 5 + 4 - c]);
}

TEST(Distort, a_window_is_cut_turned_brightened_and_stretched_about_its_own_mean) {
  const PictureSize size{2, 3, 2}, window{2, 2, 2};
  const std::vector<float> x = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
  EXPECT_EQ(changed(x, size, {}, size), x);
  EXPECT_EQ(changed(x, size, {.left = 1}, window), (std::vector<float>{2, 20, 3, 30, 5, 50, 6, 60}));
  EXPECT_EQ(changed(x, size, {.left = 1, .flipped = true}, window), (std::vector<float>{3, 30, 2, 20, 6, 60, 5, 50}));
  // Means of the channels 4 and 40, then 5 and 41: (x + 1 - mean) / 2 + mean.
  EXPECT_EQ(changed(x, size, {.left = 1, .brightness = 1, .contrast = 0.5}, window), (std::vector<float>{4, 31, 4.5f, 36, 5.5f, 46, 6, 51}));
  EXPECT_NE(message_of([&] { changed(x, size, {.top = 1}, window); }).find("a window of 2 x 2 at (1, 0) is not within a picture of 2 x 3"), std::string::npos);
}

TEST(Distort, standardised_pictures_have_mean_0_and_deviation_1_and_flat_ones_stay_finite) {
  std::vector<float> x = {1, 3, 5, 7};
  standardise(x);
  EXPECT_FLOAT_EQ(x[0], -3 / std::sqrt(5.0f));
  EXPECT_FLOAT_EQ(x[3], 3 / std::sqrt(5.0f));
  std::vector<float> flat = {4, 4, 4, 4.5f};  // a deviation of 0.22, below 1 / sqrt(4)
  standardise(flat);
  EXPECT_FLOAT_EQ(flat[3], 0.375f / 0.5f);
}

TEST(Distort, draws_fill_their_ranges_and_do_not_depend_on_one_another) {
  const Distortions all{.shear = 10, .zoom = 0.2, .crop = 3, .flip = true, .brightness = 63, .contrast = 0.8, .seed = 1}, one{.brightness = 63, .seed = 1};
  std::map<std::pair<std::int64_t, std::int64_t>, int> corners;
  double shear = 0, squares = 0, low = 1, high = 1;
  int flipped = 0;
  constexpr int kRows = 16000;
  for (int row = 0; row < kRows; ++row) {
    const Changes c = changes_of(all, {0, row});
    ++corners[{c.top, c.left}];
    flipped += c.flipped;
    shear += c.shear / kRows;
    squares += c.shear * c.shear / kRows;
    low = std::min(low, c.contrast), high = std::max(high, c.contrast);
    ASSERT_TRUE(std::abs(c.shear) <= 10 && std::abs(c.zoom_rows - 1) <= 0.2 && c.zoom_rows != c.zoom_columns && std::abs(c.brightness) <= 63);
    ASSERT_EQ(c.brightness, changes_of(one, {0, row}).brightness);
  }
  EXPECT_EQ(corners.size(), 16u);
  double chi = 0;
  for (const auto& [corner, n] : corners) chi += (n - 1000.0) * (n - 1000.0) / 1000;
  EXPECT_LT(chi, 37.7) << "chi squared of 15 degrees of freedom, one chance in a thousand";
  EXPECT_NEAR(flipped, kRows / 2.0, 200);
  EXPECT_NEAR(shear, 0, 0.15);
  EXPECT_NEAR(squares, 100.0 / 3, 1);
  EXPECT_NEAR(low, 0.2, 0.001);
  EXPECT_NEAR(high, 1.8, 0.001);
  // Another epoch, row or seed is another draw.
  std::set<double> draws;
  for (const auto& [seed, epoch, row] : {std::tuple{1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {2, 0, 0}}) draws.insert(changes_of({.shear = 10, .seed = static_cast<std::uint64_t>(seed)}, {epoch, row}).shear);
  EXPECT_EQ(draws.size(), 4u);
}

TEST(Distort, bytes_are_hashed_for_who_asks_and_once) {
  auto bytes = std::make_shared<HostTensor>(u8, Extents{2, 4, 4, 1});
  auto column = [&] { return distorted_column(bytes, {.crop = 1}, {.standardised = true}); };
  const MadeColumn first = column();
  bytes->data<std::uint8_t>()[5] = 1;
  const std::uint64_t asked = first.source();
  EXPECT_EQ(asked, column().source());
  bytes->data<std::uint8_t>()[5] = 2;
  EXPECT_EQ(MadeColumn(first).source(), asked);
  EXPECT_NE(column().source(), asked);
}

TEST(Distort, rows_are_the_same_in_any_batch_order_and_shard) {
  auto bytes = std::make_shared<HostTensor>(u8, Extents{6, 5, 4, 3});
  for (std::size_t i = 0; auto& b : bytes->data<std::uint8_t>()) b = static_cast<std::uint8_t>(i++ * 37);
  DataSet data;
  data.columns["id"] = HostTensor::of<std::int32_t>({6}, {0, 1, 2, 3, 4, 5});
  data.made["image"] = distorted_column(bytes, {.shear = 10, .zoom = 0.2, .crop = 2, .flip = true, .brightness = 63, .contrast = 0.8, .seed = 7}, {.standardised = true});
  EXPECT_EQ(data.types().at("image"), (LocalType{f32, {6, 3, 2, 3}}));
  constexpr std::size_t kPicture = 18;
  std::map<std::pair<std::int64_t, int>, std::vector<float>> seen;
  auto look = [&](const DataSet& part, std::int64_t batch, std::optional<std::uint64_t> seed) {
    Batches batches(part, batch, seed);
    while (batches.position().epoch < 2) {
      const std::int64_t epoch = batches.position().epoch;
      const auto& columns = batches.next();
      for (std::size_t i = 0; i < columns.at("id").data<std::int32_t>().size(); ++i) {
        const float* first = columns.at("image").data<float>().data() + i * kPicture;
        const std::vector<float> picture(first, first + kPicture);
        const auto [at, added] = seen.try_emplace({epoch, columns.at("id").data<std::int32_t>()[i]}, picture);
        EXPECT_EQ(at->second, picture);
      }
    }
  };
  look(data, 2, {});
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_NE((seen[{0, 3}]), (seen[{1, 3}]));
  look(data, 4, 3);
  look(data.shard(1, 2), 1, 5);
  look(data.slice(2, 3), 2, {});
}

TEST(Distort, texts_are_read_and_refused) {
  EXPECT_EQ(parse_distortions("crop=8,flip=1,brightness=63,contrast=0.8", 5), cifar10_distortions(5));
  EXPECT_EQ(to_string(cifar10_distortions(5)), "shear=0,zoom=0,crop=8,flip=1,brightness=63,contrast=0.8, seed 5");
  for (const auto& [text, wanted] : {std::pair{"flop=1", "there is no distortion 'flop'"}, {"crop=1.5", "'crop=1.5': crop is a whole number of 0 to 4096"}, {"zoom=-1", "'zoom=-1': zoom is a number of 0 to 1"}, {"zoom", "'zoom': zoom is a number"}, {"", "there is no distortion ''"},
                                     {"zoom=nan", "a number of 0 to 1"}, {"flip=1,flip=0", "'flip' stands there twice"}, {"flip=1,", "there is no distortion ''"}})
    EXPECT_NE(message_of([&, t = text] { parse_distortions(t); }).find(wanted), std::string::npos) << text << ": " << message_of([&, t = text] { parse_distortions(t); });
}

}  // namespace
}  // namespace belfry
