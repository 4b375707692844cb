#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>

namespace belfry {
namespace {

template <class T>
class HalfOf : public testing::Test {};
using Kinds = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfOf, Kinds);

TYPED_TEST(HalfOf, every_number_comes_back) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    TypeParam h = TypeParam::of_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(static_cast<float>(h))) EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(h)))) << bits;
    else ASSERT_EQ(TypeParam(static_cast<double>(static_cast<float>(h))).bits, bits);
  }
}

TYPED_TEST(HalfOf, rounds_to_the_nearest_and_ties_to_even) {
  const int infinite = TypeParam(std::numeric_limits<double>::infinity()).bits;
  for (int bits = 0; bits + 1 < infinite; ++bits) {
    double low = TypeParam::of_bits(static_cast<std::uint16_t>(bits)), high = TypeParam::of_bits(static_cast<std::uint16_t>(bits + 1));
    double tie = low + (high - low) / 2;
    ASSERT_EQ(TypeParam(tie).bits, bits + bits % 2);
    ASSERT_EQ(TypeParam(std::nextafter(tie, low)).bits, bits);
    ASSERT_EQ(TypeParam(std::nextafter(tie, high)).bits, bits + 1);
    ASSERT_EQ(TypeParam(-tie).bits, (bits + bits % 2) | 0x8000);
  }
}

TEST(Half, has_the_formats_edges) {
  EXPECT_EQ(Float16(1).bits, 0x3C00);
  EXPECT_EQ(Float16(65504).bits, 0x7BFF);
  EXPECT_EQ(Float16(65519.99).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520).bits, 0x7C00);
  EXPECT_EQ(Float16(0x1p-24).bits, 1);
  EXPECT_EQ(Float16(0x1p-25).bits, 0);
  EXPECT_EQ(BFloat16(1).bits, 0x3F80);
  EXPECT_EQ(BFloat16(1e39).bits, 0x7F80);
  EXPECT_EQ(BFloat16(-0.0).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::nan("")))));
}

TEST(Half, is_stored_and_moved_and_asks_for_a_cast_elsewhere) {
  Graph g(std::make_shared<const OpSet>(standard_ops()));
  Value x = input(g, "x", bf16, {kBatch, 4}), y = reshape(x, {kBatch, 2, 2});
  EXPECT_EQ(cast(transpose(y, {0, 2, 1}), f32).dtype(), f32);
  try {
    exp(y);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[exp] computes in f32 and f64, and input 0 is bf16, which is for storage: cast it first"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace belfry
