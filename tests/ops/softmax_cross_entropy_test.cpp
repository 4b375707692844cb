#include <gtest/gtest.h>

#include <belfry/graph/error.h>
#include <belfry/ops/softmax_cross_entropy/softmax_cross_entropy.h>

#include "tables.h"

namespace belfry::test {

OpTables softmax_cross_entropy_cases() {
  auto dense = [](const char* name, Shape x, Shape loss) { return OpCase{.name = name, .inputs = {real(x), positive(x)}, .outputs = {{f32, std::move(loss)}, {f32, x}}, .exact_sums = false}; };
  auto sparse = [](const char* name, Shape x, CaseInput label) { return OpCase{.name = name, .inputs = {real(x), label}, .outputs = {{f32, label.type.shape}, {f32, x}}, .exact_sums = false}; };
  OpTable a{"softmax_cross_entropy", {dense("classes", {kBatch, 5}, {kBatch}), dense("sequence", {kBatch, 2, 3}, {kBatch, 2}), dense("time-major", {2, kBatch, 3}, {2, kBatch}), dense("without rows", {2, 3}, {2}), dense("rows are the classes", {3, kBatch}, {3}),
                                      dense("two row axes", {kBatch, kBatch}, {kBatch})}};
  OpTable b{"sparse_softmax_cross_entropy", {sparse("classes", {kBatch, 5}, below(5, {kBatch})), sparse("sequence, i64", {kBatch, 2, 3}, below(3, {kBatch, 2}, i64)), sparse("time-major", {2, kBatch, 3}, below(3, {2, kBatch})),
                                             sparse("without rows", {2, 3}, below(3, {2})), sparse("rows are the classes", {3, kBatch}, below(kBatch, {3})), sparse("two row axes", {kBatch, kBatch}, below(kBatch, {kBatch}))}};
  a.cases[0].refused = {{{{f32, {2, 3}}, {f32, {2, 4}}}, {"must have one type"}}, {{{f32, {2, 3}}, {i32, {2}}}, {"sparse_softmax_cross_entropy"}}, {{{f32, {}}, {f32, {}}}, {"axis of classes"}}, {{{f32, {2, 0}}, {f32, {2, 0}}}, {"a class at least"}}};
  b.cases[0].refused = {{{{f32, {2, 3}}, {i32, {3}}}, {"label must have the shape (2)"}}, {{{f32, {2, 3}}, {f32, {2}}}, {"must hold integers"}}};
  return {a, b};
}

TEST(SparseSoftmaxCrossEntropy, names_the_label_that_is_no_class) {
  OpDef def = softmax_cross_entropy_defs()[1];
  OpCase c = cases_of("sparse_softmax_cross_entropy")[3];
  try {
    run_op(def, c, {HostTensor(f32, {2, 3}), HostTensor::of<std::int32_t>({2}, {1, 3})}, 1);
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()), "[sparse_softmax_cross_entropy] label 3 of row 1 is no class; classes are 0 to 2");
  }
}

}  // namespace belfry::test
