#include <gtest/gtest.h>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>

#include "tables.h"

namespace belfry::test {

const OpTables& all_cases() {
  static const OpTables all = [] {
    OpTables out;
    for (auto room : {add_n_cases, argmax_cases, avg_pool2d_cases, batch_norm_cases, binary_cases, broadcast_like_cases, cast_cases, compare_cases, concat_cases, conv2d_cases, cumsum_cases,
                      gather_cases, identity_cases, layer_norm_cases, local_response_norm_cases, matmul_cases, max_pool2d_cases, one_hot_cases, optimizer_cases, packed_attention_cases, pad_cases, random_cases,
                      reduce_cases, reshape_cases, resize_cases, row_count_cases, scaled_dot_product_attention_cases, scatter_add_cases, slice_cases, softmax_cases,
                      softmax_cross_entropy_cases, source_cases, take_along_axis_cases, top_k_cases, tower_mean_cases, transpose_cases, unary_cases})
      for (OpTable& t : room()) out.push_back(std::move(t));
    return out;
  }();
  return all;
}

std::vector<OpCase> cases_of(const std::string& op) {
  for (const OpTable& t : all_cases())
    if (t.op == op) return t.cases;
  return {};
}

namespace {

const OpSet& ops() {
  static const OpSet set = standard_ops();
  return set;
}

bool has_kernel(const KernelTable& kernels, const std::string& op) {
  return std::any_of(kernels.all().begin(), kernels.all().end(), [&](const Kernel& k) { return k.op == op; });
}

class EveryOp : public testing::TestWithParam<std::string> {
 protected:
  const OpDef& def() const { return ops().at(GetParam()); }
  std::vector<OpCase> cases() const { return cases_of(GetParam()); }
};

TEST_P(EveryOp, infers_types_and_refuses_what_does_not_fit) { check_inference(def(), cases()); }
TEST_P(EveryOp, writes_all_that_it_infers_and_the_same_bits_twice) { check_writing(def(), cases()); }
TEST_P(EveryOp, says_the_same_in_f32_and_f64) { check_precision(def(), cases()); }
TEST_P(EveryOp, has_the_gradient_of_central_differences) { check_gradient(def(), cases()); }
TEST_P(EveryOp, may_write_over_the_inputs_it_names) { check_in_place(def(), cases()); }
TEST_P(EveryOp, keeps_what_it_promises) { check_promises(def(), cases()); }
TEST_P(EveryOp, splits_as_its_rule_claims) { check_split(def(), cases()); }
TEST_P(EveryOp, gives_the_whole_through_expand) { check_expanded(def(), cases()); }

TEST_P(EveryOp, every_kernel_agrees_with_its_reference) {
  static const KernelTable kernels = cpu_kernels();
  int runs = check_kernels(kernels, def(), cases());
  EXPECT_EQ(runs > 0, has_kernel(kernels, GetParam())) << "no kernel of the op accepts a case";
}

TEST_P(EveryOp, computes_halves_as_f32_and_rounds_once) {
  static const KernelTable kernels = cpu_kernels();
  int runs = check_halves(kernels, def(), cases());
  bool computes = !def().stores && def().precision != Precision::full && !GetParam().starts_with("reduce_a");  // bools
  EXPECT_EQ(runs > 0, computes && has_kernel(kernels, GetParam()));
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& d : ops().all()) out.push_back(d->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, EveryOp, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(Coverage, every_op_has_a_case_and_every_table_an_op) {
  for (const std::string& name : names()) EXPECT_FALSE(cases_of(name).empty()) << name << " has no case: add one to the table of its room";
  for (const OpTable& t : all_cases()) EXPECT_NE(ops().find(t.op), nullptr) << t.op;
}

TEST(Coverage, every_op_with_two_inputs_or_an_attribute_refuses_something) {
  for (const OpTable& t : all_cases()) {
    const OpDef& def = ops().at(t.op);
    if (def.inputs.size() < 2 && def.attributes.empty()) continue;
    bool any = std::any_of(t.cases.begin(), t.cases.end(), [](const OpCase& c) { return !c.refused.empty(); });
    EXPECT_TRUE(any) << t.op;
  }
}

}  // namespace
}  // namespace belfry::test
