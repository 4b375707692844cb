#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "numeric_gradient.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor of(const std::string& equation, const std::vector<HostTensor>& xs) {
  return built(xs, [&](const auto& v) { return std::vector{einsum(equation, v)}; })[0];
}

TEST(Einsum, of_one_operand_transposes_and_sums) {
  HostTensor x = counting({2, 3});
  EXPECT_THAT(of("ij->ji", {x}).values<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(of("ij->j", {x}).values<float>(), ElementsAre(3, 5, 7));
  EXPECT_THAT(of("ij->", {x}).values<float>(), ElementsAre(15));
  EXPECT_EQ(of("ij->ij", {x}), x);
}

TEST(Einsum, without_an_arrow_keeps_what_stands_once) {
  HostTensor a = counting({2, 3}), b = counting({3, 2});
  EXPECT_EQ(of("ij,jk", {a, b}), of("ij,jk->ik", {a, b}));
  EXPECT_EQ(of("ba", {a}), of("ba->ab", {a}));
  EXPECT_EQ(of("kj, ik", {a, counting({4, 2})}), of("kj,ik->ij", {a, counting({4, 2})}));
}

TEST(Einsum, names_axes_by_capitals_too) {
  HostTensor a = counting({2, 3}), b = counting({3, 4});
  EXPECT_EQ(of("aB,Bc->ca", {a, b}), of("ij,jk->ki", {a, b}));
}

TEST(Einsum, sums_letters_of_one_operand_and_letters_in_another_order) {
  HostTensor a = counting({2, 3, 4}), b = counting({4, 3});
  float wanted[2] = {};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) wanted[i] += static_cast<float>((12 * i + 4 * j + k) * (3 * k + j));
  EXPECT_THAT(of("ijk,kj->i", {a, b}).values<float>(), ElementsAre(wanted[0], wanted[1]));
  EXPECT_EQ(of("ijk,lm->i", {a, b}).values<float>()[0], 66 * 66);
}

TEST(Einsum, multiplies_several_operands_from_left_to_right) {
  HostTensor a = counting({2, 3}), b = counting({3, 4}), c = counting({4, 2});
  EXPECT_EQ(of("ij,jk,kl->li", {a, b, c}), of("ik,kl->li", {of("ij,jk->ik", {a, b}), c}));
  EXPECT_EQ(of("ij,jk,ik->i", {a, b, counting({2, 4})}), of("ik,ik->i", {of("ij,jk->ik", {a, b}), counting({2, 4})}));
  EXPECT_THAT(of("i,i,i->", {counting({3}), counting({3}), counting({3})}).values<float>(), ElementsAre(9));
}

TEST(Einsum, has_the_gradient_of_central_differences) {
  EXPECT_LT(gradient_error([](Builder& b) {
    auto x = [&](const char* name, Shape s) { return b.variable(name, std::move(s), {.dtype = f64, .init = "normal", .init_value = 1}); };
    return reduce_sum(square(einsum("abc,cbd,e->da", {x("x", {2, 3, 2}), x("y", {2, 3, 2}), x("z", {2})})));
  }), 1e-6);
}

TEST(Einsum, says_what_is_wrong_with_an_equation) {
  auto said = [](const std::string& equation) { return refusal({{f32, {2, 3}}, {f32, {3, 3}}}, [&](const auto& v) { return std::vector{einsum(equation, v)}; }); };
  EXPECT_THAT(said("ij->i"), HasSubstr("[einsum] \"ij->i\": names 1 operands, 2 are given"));
  EXPECT_THAT(said("ijk,jk->i"), HasSubstr("names 3 axes of operand 0, 'x0' of shape (2, 3)"));
  EXPECT_THAT(said("ij,jj->i"), HasSubstr("operand 1 has axis 'j' twice; diagonals are not supported"));
  EXPECT_THAT(said("ij,jk->iz"), HasSubstr("axis 'z' of y is in no operand"));
  EXPECT_THAT(said("ij,jk->ii"), HasSubstr("y has axis 'i' twice"));
  EXPECT_THAT(said("...j,jk->...k"), HasSubstr("ellipses are not supported"));
  EXPECT_THAT(said("i1,jk->ik"), HasSubstr("'1' is neither a letter, a comma nor the arrow"));
  EXPECT_THAT(said("ij,jk->i,k"), HasSubstr("',' is neither"));
  EXPECT_THAT(said("ij,jk->i->k"), HasSubstr("'-' is neither"));
  EXPECT_THAT(said("ij,ik->jk"), HasSubstr("axis 'i' is 2 in one operand and 3 in the other"));
  EXPECT_THAT(refusal({}, [](const auto& v) { return std::vector{einsum("i->i", v)}; }), HasSubstr("there are no operands"));
}

}  // namespace
}  // namespace belfry::test
