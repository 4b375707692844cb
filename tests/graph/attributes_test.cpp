#include <belfry/graph/attributes.h>

#include <cmath>

#include "says.h"

namespace belfry::test {
namespace {

const std::vector<AttributeDef> kSchema = {{"axis", -1}, AttributeDef("rate", AttributeKind::real).between(0, 1), AttributeDef("padding", "valid").one_of({"valid", "same"}),
                                           AttributeDef("window", Integers{1}).between(1, 9), {"scales", Reals{}}};

TEST(Attributes, are_filled_in_and_put_in_schema_order) {
  Attributes a = checked(kSchema, {{"rate", 1}, {"axis", 2}}, "[op]");
  ASSERT_EQ(a.entries().size(), 5u);
  EXPECT_EQ(a.entries()[0].first, "axis");
  EXPECT_EQ(a.integer("axis"), 2);
  EXPECT_EQ(a.real("rate"), 1.0);
  EXPECT_EQ(a.text("padding"), "valid");
}

TEST(Attributes, take_an_integer_for_a_real_and_never_the_reverse) {
  EXPECT_EQ(checked(kSchema, {{"rate", 0}, {"scales", Integers{1, 2}}}, "[op]").get<Reals>("scales"), (Reals{1, 2}));
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", 0.5}, {"axis", 1.0}}, "[op] node 'n':"); }, {"[op] node 'n': attribute 'axis' is a integer, not a float: 1"}));
}

TEST(Attributes, refuse_unknown_missing_and_outlying_ones) {
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", 0.5}, {"axes", 1}}, "[op]"); }, {"no attribute 'axes'", "axis, rate, padding"}));
  EXPECT_TRUE(says([] { checked({}, {{"x", 1}}, "[op]"); }, {"it has none"}));
  EXPECT_TRUE(says([] { checked(kSchema, {}, "[op]"); }, {"needs the attribute 'rate' (float)"}));
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", 1.5}}, "[op]"); }, {"'rate' is 1.5", "[0, 1]"}));
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", std::nan("")}}, "[op]"); }, {"[0, 1]"}));
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", 0}, {"window", Integers{3, 0}}}, "[op]"); }, {"'window' is 0"}));
  EXPECT_TRUE(says([] { checked(kSchema, {{"rate", 0}, {"padding", "full"}}, "[op]"); }, {"\"full\"", "valid, same"}));
}

TEST(Attributes, are_equal_by_bits) {
  EXPECT_EQ(AttributeValue(std::nan("")), AttributeValue(std::nan("")));
  EXPECT_FALSE(AttributeValue(0.0) == AttributeValue(-0.0));
  EXPECT_FALSE(AttributeValue(1) == AttributeValue(1.0));
  EXPECT_EQ(AttributeValue(HostTensor::scalar(1.0f)), AttributeValue(HostTensor::scalar(1.0f)));
  EXPECT_FALSE(AttributeValue(HostTensor::scalar(1.0f)) == AttributeValue(HostTensor::scalar(1.0)));
  EXPECT_FALSE(AttributeValue(Reals{0.0}) == AttributeValue(Reals{-0.0}));
  EXPECT_EQ(AttributeValue(Reals{std::nan("")}), AttributeValue(Reals{std::nan("")}));
}

TEST(Attributes, of_another_type_are_a_bug) { EXPECT_TRUE(says<InternalError>([] { Attributes({{"a", 1}}).real("a"); }, {"attribute 'a'"})); }

}  // namespace
}  // namespace belfry::test
