#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "built.h"
#include "says.h"
#include "tables.h"

namespace belfry::test {

OpTables slice_cases() {
  const Dim B = kBatch;
  struct Row {
    const char* name;
    Shape x, begin, size;
    Integers strides = {};
  };
  std::vector<Row> rows = {{"columns of rows", {B, 5}, {0, 1}, {B, 3}},
                           {"every second column from the last", {B, 5}, {0, 0}, {B, 3}, {1, -2}},
                           {"without rows", {4, 3, 5}, {1, 0, 2}, {2, 3, 2}, {2, -1, 1}},
                           {"the rows from the last", {B, 2}, {0, 0}, {B, 2}, {-1, 1}},
                           {"the first row", {B, 2}, {0, 0}, {1, 2}},
                           {"one of each pair of rows", {2 * B, 2}, {1, 0}, {B, 2}, {2, 1}},
                           {"the first half of the rows", {2 * B}, {0}, {B}},
                           {"the second half of the rows", {2 * B}, {B}, {B}},
                           {"rows at the side", {3, B}, {1, 0}, {2, B}},
                           {"a row of a square", {B, B}, {0, 0}, {1, B}},
                           {"nothing", {B, 3}, {0, 1}, {B, 0}}};
  OpTable forward{"slice", {}}, gradient{"slice_gradient", {}};
  for (const Row& r : rows) {
    Attributes a = {{"begin", r.begin}, {"size", r.size}, {"strides", r.strides}};
    forward.cases.push_back({.name = r.name, .attributes = a, .inputs = {real(r.x)}, .outputs = {{f32, r.size}}});
    gradient.cases.push_back({.name = r.name, .attributes = a, .inputs = {real(r.size), real(r.x)}, .outputs = {{f32, r.x}}});
  }
  auto with = [](Shape begin, Shape size, Integers strides = {}) { return Attributes{{"begin", std::move(begin)}, {"size", std::move(size)}, {"strides", std::move(strides)}}; };
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  forward.cases[0].refused = {{{{f32, {4, 5}}}, {"axis 1: 3 elements from 3 on, 1 apart, are not all inside 5"}, with({0, 3}, {4, 3})},
                              {{{f32, {4, 5}}}, {"axis 1: 3 elements from 0 on, -3 apart"}, with({0, 0}, {4, 3}, {1, -3})},
                              {{{f32, {B, 5}}}, {"axis 0: batch elements from 1 on"}, with({1, 0}, {B, 5})},
                              {{{f32, {2 * B, 5}}}, {"axis 0: batch elements from 2 on"}, with({2, 0}, {B, 5}, {2, 1})},
                              {{{f32, {2 * B, 5}}}, {"axis 0"}, with({2 * B, 0}, {B, 5})},
                              {{{f32, {B, 5}}}, {"axis 0"}, with({0, 0}, {B, 5}, {2, 1})},
                              {{{f32, {2 * B, 5}}}, {"axis 0"}, with({0, 0}, {B, 5}, {3, 1})},
                              {{{f32, {2 * B, 5}}}, {"axis 0"}, with({B, 0}, {B, 5}, {2, 1})},
                              {{{f32, {4, 5}}}, {"axis 0: batch elements"}, with({0, 0}, {B, 5})},
                              {{{f32, {4, 5}}}, {"axis 0"}, with({0, 0}, {-1, 5})},
                              {{{f32, {4, 5}}}, {"axis 0"}, with({0, 0}, {3, 5}, {most, 1})},
                              {{{f32, {4, 5}}}, {"the stride of axis 1 is 0"}, with({0, 0}, {4, 5}, {1, 0})},
                              {{{f32, {4}}}, {"need 1 entries each"}, with({0, 0}, {4, 5})}};
  gradient.cases[0].refused = {{{{f32, {B, 2}}, {f32, {B, 5}}}, {"dy is not of the slice's shape (batch, 3)"}}};
  for (DType half : {f16, bf16}) {
    CaseInput x{{half, {B, 5}}}, dy{{half, {B, 2}}};
    Attributes a = with({0, 3}, {B, 2}, {1, -1});
    forward.cases.push_back({.name = "halves", .attributes = a, .inputs = {x}, .outputs = {dy.type}, .keep_dtypes = true});
    gradient.cases.push_back({.name = "halves", .attributes = a, .inputs = {dy, x}, .outputs = {x.type}, .keep_dtypes = true});
  }
  forward.cases.push_back({.name = "bools", .attributes = with({0, 1}, {B, 2}), .inputs = {bits({B, 3})}, .outputs = {{boolean, {B, 2}}}});
  return {forward, gradient};
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Values = std::vector<Value>;

TEST(StridedSlice, cuts_as_numpy_does) {
  struct Row {
    Integers begin, end, strides;
    std::vector<float> wanted;
  };
  for (const Row& r : std::vector<Row>{{{1}, {4}, {}, {1, 2, 3}},
                                       {{-3}, {kToEnd}, {}, {2, 3, 4}},
                                       {{0}, {99}, {2}, {0, 2, 4}},
                                       {{kToEnd}, {kFromStart}, {-1}, {4, 3, 2, 1, 0}},
                                       {{-2}, {0}, {-2}, {3, 1}},
                                       {{3}, {1}, {}, {}},
                                       {{-99}, {2}, {}, {0, 1}},
                                       {{99}, {-99}, {-3}, {4, 1}},
                                       {{0}, {5}, {kToEnd}, {0}}}) {
    HostTensor y = built({counting({5})}, [&](auto x) { return Values{strided_slice(x[0], r.begin, r.end, r.strides)}; })[0];
    EXPECT_THAT(y.data<float>(), testing::ElementsAreArray(r.wanted)) << r.begin[0] << ":" << r.end[0];
  }
}

TEST(StridedSlice, of_rows_takes_all_or_fixed_positions) {
  auto shape_of = [](Dim rows, std::int64_t begin, std::int64_t end, std::int64_t stride) {
    Shape out;
    std::string said = refusal({{f32, {rows, 3}}}, [&](auto x) {
      Value y = strided_slice(x[0], {begin, 0}, {end, kToEnd}, {stride, 1});
      out = y.shape();
      return Values{y};
    });
    return said == "accepted" ? to_string(std::span(out)) : said;
  };
  EXPECT_EQ(shape_of(kBatch, 0, kToEnd, 1), "(batch, 3)");
  EXPECT_EQ(shape_of(kBatch, kToEnd, kFromStart, -1), "(batch, 3)");
  EXPECT_EQ(shape_of(4 * kBatch, 1, kToEnd, 2), "(2*batch, 3)");
  EXPECT_EQ(shape_of(kBatch, 1, 4, 2), "(2, 3)");
  for (const auto& said : {shape_of(kBatch, 1, kToEnd, 1), shape_of(kBatch, 0, -1, 1), shape_of(kBatch, 0, kToEnd, 2), shape_of(kBatch, -2, kToEnd, 1)})
    EXPECT_THAT(said, HasSubstr("axis 0 is batch, whose size is not known here"));
}

TEST(Slice, of_more_rows_than_there_are_is_an_error_of_the_run) {
  OpDef def = slice_defs()[0];
  OpCase c{.name = "two rows", .attributes = {{"begin", Shape{1, 0}}, {"size", Shape{2, 2}}}, .inputs = {real({kBatch, 2})}, .outputs = {{f32, {2, 2}}}};
  EXPECT_THAT(run_op(def, c, {counting({3, 2})}, 3)[0].data<float>(), ElementsAre(2, 3, 4, 5));
  try {
    run_op(def, c, {counting({2, 2})}, 2);
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("axis 0: 2 elements from 1 on, 1 apart, reach behind the 2 that there are"));
  }
}

/// Else a plan would be made that cannot run.
TEST(Slice, of_more_rows_than_a_batch_has_is_refused_where_the_batch_is_known) {
  Builder b("behind");
  Value x = b.input("x", f32, {kBatch, 2}) * b.variable("w", {2}), part = slice(x, {3, 0}, {1, 2});
  b.metric("part", part);
  b.minimize(reduce_sum(part), Sgd{});
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), std::move(b).build()));
  auto placed = [&](std::int64_t batch) { return expand(graph, {.towers = 2, .batch = batch, .updates = true}); };
  EXPECT_NO_THROW(placed(4));
  EXPECT_TRUE(says<UserError>([&] { placed(3); }, {"[slice] axis 0: 1 elements from 3 on, 1 apart, reach behind the 3 that there are in a batch of 3: take a larger one; node 'slice' (slice_test.cpp:"}));
}

TEST(Slice, of_nothing_or_one_element_takes_any_step_and_no_place_outside) {
  const std::int64_t far = std::int64_t{1} << 62;
  auto taken = [](std::int64_t begin, std::int64_t size, std::int64_t stride) {
    OpCase c{.name = "part", .attributes = {{"begin", Shape{begin}}, {"size", Shape{size}}, {"strides", Integers{stride}}}, .inputs = {real({4})}, .outputs = {{f32, {size}}}};
    return run_op(slice_defs()[0], c, {counting({4})}, 1)[0].values<float>();
  };
  EXPECT_THAT(taken(2, 1, far), ElementsAre(2));
  EXPECT_THAT(taken(4, 0, far), ElementsAre());
  EXPECT_THAT(refusal({{f32, {4}}}, [&](auto x) { return Values{slice(x[0], {5}, {0})}; }), HasSubstr("are not all inside 4"));
  EXPECT_THAT(refusal({{f32, {4}}}, [&](auto x) { return Values{slice(x[0], {0}, {1}, {kFromStart})}; }), HasSubstr("the least is -9223372036854775807"));
}

TEST(Reverse, turns_the_axes_it_names) {
  EXPECT_THAT(built({counting({2, 3})}, [](auto x) { return Values{reverse(x[0], {-1})}; })[0].data<float>(), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(refusal({{f32, {2}}}, [](auto x) { return Values{reverse(x[0], {1})}; }), HasSubstr("[reverse] axis 1 is out of range for 'x0' of shape (2)"));
}

TEST(SplitEven, and_split_sizes_and_unstack_cut_an_axis_into_parts) {
  auto even = built({counting({2, 4})}, [](auto x) { return split_even(x[0], 2, 1); });
  ASSERT_EQ(even.size(), 2u);
  EXPECT_THAT(even[1].data<float>(), ElementsAre(2, 3, 6, 7));
  auto uneven = built({counting({5})}, [](auto x) { return split_sizes(x[0], {1, 0, 4}); });
  ASSERT_EQ(uneven.size(), 3u);
  EXPECT_EQ(uneven[1].elements(), 0);
  EXPECT_THAT(uneven[2].data<float>(), ElementsAre(1, 2, 3, 4));
  auto rows = built({counting({2, 2})}, [](auto x) { return unstack(x[0]); });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].shape(), Extents{2});
  EXPECT_THAT(rows[1].data<float>(), ElementsAre(2, 3));
}

TEST(SplitEven, and_split_sizes_and_unstack_say_what_is_not_cut) {
  TensorType rows{f32, {kBatch, 4}};
  EXPECT_THAT(refusal({rows}, [](auto x) { return split_even(x[0], 2); }), HasSubstr("axis 0 of 'x0' is batch, which is not cut into 2 equal parts"));
  EXPECT_THAT(refusal({rows}, [](auto x) { return split_even(x[0], 3, 1); }), HasSubstr("axis 1 of 'x0' is 4"));
  EXPECT_THAT(refusal({rows}, [](auto x) { return split_even(x[0], 0, 1); }), HasSubstr("0 equal parts"));
  EXPECT_THAT(refusal({rows}, [](auto x) { return split_sizes(x[0], {1, 2}, 1); }), HasSubstr("the sizes (1, 2) do not add up to 4"));
  EXPECT_THAT(refusal({rows}, [](auto x) { return split_sizes(x[0], {-1, 5}, 1); }), HasSubstr("do not add up"));
  EXPECT_THAT(refusal({rows}, [](auto x) { return unstack(x[0]); }), HasSubstr("axis 0 of 'x0' is batch"));
}

}  // namespace
}  // namespace belfry::test
