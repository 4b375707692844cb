#include <belfry/graph/shape.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <belfry/graph/attributes.h>
#include <belfry/graph/error.h>
#include <belfry/graph/host_tensor.h>
#include <belfry/graph/split_state.h>

#include "says.h"

namespace belfry::test {
namespace {

TEST(Dim, prints_and_reads_back) {
  for (const Dim& d : {Dim(0), Dim(1), Dim(28), kBatch, 2 * kBatch, Dim(3, "time_1"), Dim(std::numeric_limits<std::int64_t>::max())}) EXPECT_EQ(parse_dim(to_string(d)), d) << to_string(d);
  EXPECT_EQ(to_string(2 * kBatch), "2*batch");
  EXPECT_EQ(to_string(kBatch), "batch");
}

TEST(Dim, refuses_what_is_no_dimension) {
  for (const char* wrong : {"", "-1", "2*", "*batch", "2batch", "2*2", "0*batch", "batch*2", "a b", "9223372036854775808", "1.5", "é"}) EXPECT_TRUE(says([&] { parse_dim(wrong); }, {wrong, "is no dimension", "2*batch"})) << wrong;
}

TEST(Dim, is_bound_by_its_factor_and_symbol) {
  EXPECT_EQ((2 * kBatch).at(7), 14);
  EXPECT_EQ(Dim(5).at(7), 5);
  EXPECT_EQ(extents_of({kBatch, 28, 2 * kBatch}, 3), (Extents{3, 28, 6}));
}

TEST(Shape, prints_types_as_people_write_them) {
  EXPECT_EQ(to_string(TensorType{f32, {kBatch, 28, 28, 1}}), "f32(batch, 28, 28, 1)");
  EXPECT_EQ(to_string(TensorType{i64, {}}), "i64()");
  EXPECT_EQ(symbolic_axes({3, kBatch, 2 * kBatch}), (std::vector<int>{1, 2}));
}

TEST(Shape, broadcasts_from_the_right) {
  Shape out;
  EXPECT_TRUE(broadcast({{kBatch, 3}, {3}, {}}, out));
  EXPECT_EQ(out, (Shape{kBatch, 3}));
  EXPECT_TRUE(broadcast({{kBatch, 1}, {1, kBatch}}, out));
  EXPECT_EQ(out, (Shape{kBatch, kBatch}));
  EXPECT_TRUE(broadcast({{0}, {1}}, out));
  EXPECT_EQ(out, (Shape{0}));
  EXPECT_FALSE(broadcast({{2}, {3}}, out));
  EXPECT_FALSE(broadcast({{kBatch}, {2 * kBatch}}, out));
  EXPECT_FALSE(broadcast({{kBatch}, {4}}, out));
}

TEST(Shape, refuses_a_count_that_overflows) {
  EXPECT_EQ(elements({}), 1);
  EXPECT_EQ(elements({4, 0}), 0);
  EXPECT_TRUE(says([] { elements({std::int64_t{1} << 32, std::int64_t{1} << 32}); }, {"more than 2^63 elements", "4294967296"}));
}

TEST(Shape, refuses_a_dimension_that_overflows_when_it_is_bound) {
  EXPECT_TRUE(says([] { Dim(std::int64_t{1} << 62, "batch").at(4); }, {"4611686018427387904*batch", "4"}));
}

TEST(Shape, refuses_bytes_that_overflow) {
  EXPECT_TRUE(says([] { LocalType{f64, {std::int64_t{1} << 61}}.bytes(); }, {"f64(2305843009213693952)"}));
}

TEST(DTypes, are_named_and_read_back) {
  for (DType d : kAllDTypes) EXPECT_EQ(parse_dtype(name_of(d)), d);
  EXPECT_TRUE(says([] { parse_dtype("f8"); }, {"unknown dtype 'f8'", "f32, f64"}));
  for (const auto& [theirs, ours] : {std::pair("float32", "f32"), {"double", "f64"}, {"int", "i32"}, {"half", "f16"}, {"bfloat16", "bf16"}})
    EXPECT_TRUE(says([theirs = theirs] { parse_dtype(theirs); }, {std::string("did you mean ") + ours + "?"}));
}

TEST(HostTensors, check_their_dtype_and_count) {
  auto t = HostTensor::of<float>({2}, {1, 2});
  EXPECT_TRUE(says([&] { t.data<double>(); }, {"f32 was read as f64"}));
  EXPECT_TRUE(says([&] { t.item<float>(); }, {"item()", "(2)"}));
  EXPECT_TRUE(says([] { HostTensor::of<float>({3}, {1, 2}); }, {"2 values for the shape (3)"}));
  EXPECT_TRUE(says([] { HostTensor(f32, {-1, 2}); }, {"f32(-1, 2)", "negative size"}));
  EXPECT_TRUE(says([] { HostTensor(f32, {-1, -2}); }, {"negative size"}));
}

TEST(Shares, know_what_they_hold) {
  for (std::int64_t count = 0; count <= 12; ++count)
    for (std::int64_t parts = 1; parts <= 14; ++parts) {
      std::int64_t k = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        EXPECT_EQ(share_of(count, parts, i).first, k);
        for (; k < share_of(count, parts, i).past; ++k) EXPECT_EQ(share_with(count, parts, k), i) << k << " of " << count << " in " << parts;
      }
      EXPECT_EQ(k, count);
    }
}

TEST(HostTensors, are_copied_moved_and_assigned) {
  const auto t = HostTensor::of<float>({2}, {1, 2});
  HostTensor copy = t, zeros(f32, {2}), longer(f32, {3}), empty(f32, {0, 3});
  EXPECT_EQ(copy, t);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.raw()) % 64, 0u);
  EXPECT_EQ(zeros, HostTensor::of<float>({2}, {0, 0}));
  const std::byte* const place = zeros.raw();
  zeros = t;
  EXPECT_EQ(zeros, t);
  EXPECT_EQ(zeros.raw(), place) << "as many bytes stay where they are";
  longer = t;
  EXPECT_EQ(longer, t);
  const std::byte* const moved_from = copy.raw();
  const HostTensor moved = std::move(copy);
  EXPECT_EQ(moved.raw(), moved_from);
  EXPECT_EQ(moved, t);
  longer = empty;
  EXPECT_EQ(longer, empty);
  EXPECT_EQ(to_string(t), "f32(2){1, 2}");
}

}  // namespace
}  // namespace belfry::test
