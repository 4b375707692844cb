#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables cumsum_cases() {
  auto of = [](const char* name, Attributes a, Shape x) { return OpCase{.name = name, .attributes = std::move(a), .inputs = {real(x)}, .outputs = {{f32, x}}}; };
  OpTable t{"cumsum",
            {of("features of rows", {{"axis", 1}}, {kBatch, 4, 2}), of("exclusive, from the last", {{"axis", -1}, {"exclusive", true}, {"reverse", true}}, {kBatch, 5}),
             of("exclusive", {{"axis", 0}, {"exclusive", true}}, {3, 2}),
             of("from the last", {{"axis", 1}, {"reverse", true}}, {2, 3, kBatch}), of("along the rows", {{"axis", 0}}, {kBatch, 2}), of("along one of two row axes", {{"axis", 0}}, {kBatch, kBatch}),
             of("more than one group of lanes", {{"axis", 0}}, {3, 70})}};
  t.cases.push_back({.name = "integers", .attributes = {{"axis", 1}}, .inputs = {whole_numbers({kBatch, 3})}, .outputs = {{i32, {kBatch, 3}}}});
  t.cases[0].refused = {{{{f32, {2, 3}}}, {"axis 2 is out of range"}, {{"axis", 2}}}, {{{boolean, {2, 3}}}, {"cast first"}}, {{{f32, {}}}, {"axis 1 is out of range"}}};
  return {t};
}

TEST(Cumsum, counts_from_either_end_with_and_without_the_element_itself) {
  auto of = [](CumsumOptions o) { return built({HostTensor::of<float>({4}, {1, 2, 3, 4})}, [&](auto x) { return std::vector{cumsum(x[0], o)}; })[0]; };
  using testing::ElementsAre;
  EXPECT_THAT(of({}).values<float>(), ElementsAre(1, 3, 6, 10));
  EXPECT_THAT(of({.exclusive = true}).values<float>(), ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(of({.reverse = true}).values<float>(), ElementsAre(10, 9, 7, 4));
  EXPECT_THAT(of({.exclusive = true, .reverse = true}).values<float>(), ElementsAre(9, 7, 4, 0));
}

}  // namespace belfry::test
