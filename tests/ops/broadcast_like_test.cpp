#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables broadcast_like_cases() {
  auto of = [](const char* name, Shape x, Shape like) { return OpCase{.name = name, .inputs = {real(std::move(x)), real(like)}, .outputs = {{f32, like}}}; };
  OpTable table{"broadcast_like",
                {of("row to rows", {3}, {kBatch, 3}), of("scalar to rows", {}, {kBatch, 3}), of("column", {kBatch, 1}, {kBatch, 4}), of("without rows", {3}, {2, 3}),
                 of("same size", {1, 3}, {3}), of("two row axes", {kBatch, 1}, {kBatch, kBatch}), of("second row axis", {kBatch}, {kBatch, kBatch}), of("time-major", {kBatch, 2}, {3, kBatch, 2})}};
  table.cases[4] = of("same size", {2, 3}, {2, 3});
  table.cases[0].refused = {{{{f32, {2}}, {f32, {3}}}, {"do not broadcast"}}, {{{f32, {2, 3}}, {f32, {3}}}, {"does not stretch"}}};
  auto to = [](const char* name, Shape x, Shape y) { return OpCase{.name = name, .attributes = {{"shape", y}}, .inputs = {real(std::move(x))}, .outputs = {{f32, y}}}; };
  OpTable given{"broadcast_to",
                {to("row to rows", {3}, {kBatch, 3}), to("scalar to rows", {}, {kBatch}), to("column", {kBatch, 1}, {kBatch, 4}), to("without rows", {3, 1}, {2, 3, 4}), to("same size", {3}, {1, 3}),
                 to("two row axes", {kBatch, 1}, {kBatch, kBatch}), to("second row axis", {kBatch}, {kBatch, kBatch}), to("time-major", {kBatch, 2}, {3, kBatch, 2})}};
  given.cases[0].refused = {{{{f32, {2}}}, {"x does not stretch to the shape (batch, 3)"}}, {{{f32, {2, 3}}}, {"does not stretch"}, {{"shape", Shape{3}}}}};
  return {table, given};
}

namespace {

using Values = std::vector<Value>;

TEST(Tile, repeats_along_each_axis) {
  HostTensor y = built({counting({1, 2})}, [](auto x) { return Values{tile(x[0], {2, 3})}; })[0];
  EXPECT_EQ(y.shape(), (Extents{2, 6}));
  EXPECT_THAT(y.data<float>(), testing::ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_EQ(built({counting({3})}, [](auto x) { return Values{tile(x[0], {1})}; })[0], counting({3}));
}

TEST(Tile, keeps_the_symbol_of_the_batch) {
  Shape beside, over;
  std::string said = refusal({{f32, {kBatch, 2}}}, [&](auto x) {
    beside = tile(x[0], {1, 2}).shape();
    over = tile(x[0], {3, 1}).shape();
    return x;
  });
  EXPECT_EQ(said, "accepted");
  EXPECT_EQ(beside, (Shape{kBatch, 4}));
  EXPECT_EQ(over, (Shape{3 * kBatch, 2}));
}

TEST(Tile, refuses_what_is_no_count) {
  for (Integers wrong : {Integers{1}, Integers{0, 1}, Integers{1, std::int64_t{1} << 60}})
    EXPECT_THAT(refusal({{f32, {kBatch, 2}}}, [&](auto x) { return Values{tile(x[0], wrong)}; }), testing::HasSubstr("[tile]"));
}

}  // namespace

}  // namespace belfry::test
