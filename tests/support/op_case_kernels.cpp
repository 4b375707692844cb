#include "op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include <belfry/graph/halves.h>
#include <belfry/ops/all_ops.h>

namespace belfry::test {

OpCase in_halves(const OpDef& def, const OpCase& c, DType half) {
  OpCase out = c;
  auto narrow = [&](TensorType& t, bool wide) {
    if (t.dtype == f32 && !wide) t.dtype = half;
  };
  for (std::size_t i = 0; i < out.inputs.size(); ++i) narrow(out.inputs[i].type, !may_be_half(def, i));
  for (std::size_t k = 0; k < out.outputs.size(); ++k) narrow(out.outputs[k], def.outputs[k].wide);
  // Two results that differ before they are rounded may come out one place apart: what epsilon is of a half.
  out.tolerance = std::max(c.tolerance, half == bf16 ? 0x1p-7 : 0x1p-10);
  out.name += std::string(" in ") + std::string(name_of(half));
  return out;
}

namespace {

int total(const KernelRuns& runs) {
  return std::accumulate(runs.begin(), runs.end(), 0, [](int sum, const auto& run) { return sum + run.second; });
}

/// Gives the number of runs.
int compare_kernels(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted, std::int64_t batch) {
  KernelRuns runs;
  for (const std::string& o : objections_to_launches(kernels, def, c, inputs, wanted, batch, runs)) ADD_FAILURE() << o;
  return total(runs);
}

}  // namespace

int check_halves(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases) {
  int runs = 0, left = 3;
  if (def.stores || def.precision == Precision::full) return 0;
  auto ops = std::make_shared<const OpSet>(standard_ops());
  for (const OpCase& given : cases) {
    const bool real = std::any_of(given.inputs.begin(), given.inputs.end(), [](const CaseInput& i) { return i.given && i.type.dtype == f32; });
    if (!given.no_reference.empty() || given.keep_dtypes || !real || left == 0) continue;
    --left;
    for (DType half : {bf16, f16}) {
      const OpCase c = in_halves(def, given, half);
      SCOPED_TRACE(def.name + ": " + c.name);
      Graph g(ops);
      std::vector<Value> values;
      for (const CaseInput& i : c.inputs) values.push_back(i.given ? g.add("input", {}, {{"dtype", i.type.dtype}, {"shape", i.type.shape}}) : Value{});
      EXPECT_EQ(g.node(g.add(def.name, values, c.attributes).id.node).types, c.outputs);
      std::vector<HostTensor> inputs = draw_all(c, 3, false, 29), wide;
      for (const HostTensor& x : inputs) wide.push_back(is_half(x.dtype()) ? converted(x, f32) : x);
      // What halves mean: the op of f32 on what they hold, rounded once.
      std::vector<HostTensor> wanted = run_op(def, given, wide, 3);
      for (std::size_t k = 0; k < wanted.size(); ++k) wanted[k] = converted(wanted[k], c.outputs[k].dtype);
      EXPECT_EQ(run_op(def, c, inputs, 3), wanted);
      const int here = compare_kernels(kernels, def, c, inputs, wanted, 3), full = compare_kernels(kernels, def, given, wide, run_op(def, given, wide, 3), 3);
      EXPECT_EQ(here > 0, full > 0) << "a kernel of f32 is left out, and the reference would run";
      runs += here;
    }
  }
  return runs;
}

int check_kernels(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases) {
  const OpUnderCheck op{std::make_shared<const OpSet>(standard_ops()), def};
  KernelRuns runs;
  for (const OpCase& c : cases)
    for (const std::string& o : objections_to_kernels(kernels, op, c, runs)) ADD_FAILURE() << o;
  return total(runs);
}

int check_given(const KernelTable& kernels, const OpDef& def, const OpCase& given, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted) {
  int runs = 0;
  for (const OpCase& c : {given, in_f64(def, given)}) {
    SCOPED_TRACE(def.name + ": " + c.name);
    std::vector<HostTensor> in, out;
    for (std::size_t i = 0; i < inputs.size(); ++i) in.push_back(converted(inputs[i], c.inputs[i].type.dtype));
    for (std::size_t k = 0; k < wanted.size(); ++k) out.push_back(converted(wanted[k], c.outputs[k].dtype));
    auto got = run_op(def, c, in, 1);
    for (std::size_t k = 0; k < got.size(); ++k) {
      if (wanted[k].bytes().empty()) continue;
      EXPECT_LE(distance(got[k], out[k]), c.tolerance) << "output " << k << " of the reference";
    }
    runs += compare_kernels(kernels, def, c, in, out, 1);
  }
  return runs;
}

}  // namespace belfry::test
