#include <belfry/ops/cuda/join_internal.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/executor/join_request.h>
#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>

namespace belfry {

Generated join_source(const std::vector<int>& tree, const std::string& how, std::int64_t present, const LocalType& type) {
  bool most = how == "max";
  if (!most && how != "sum" && how != "mean") throw InternalError("no tree joins by " + how);
  ScalarTree t{{}, {}, type.shape};
  t.inputs.assign(static_cast<std::size_t>(std::count_if(tree.begin(), tree.end(), [](int s) { return s >= 0; })), stretched(type, type.shape));
  // Bools are 0 or 1, and the greater of two is their or.
  const std::string text = type.dtype == boolean ? "a || b" : most ? "a >= b || a != a ? a : b" : "a + b";
  std::vector<std::size_t> stack;
  for (int step : tree) {
    if (step >= 0) {
      stack.push_back(static_cast<std::size_t>(step));
      continue;
    }
    std::size_t b = stack.back(), a = stack[stack.size() - 2];
    stack.pop_back();
    stack.back() = t.inputs.size() + t.steps.size();
    t.steps.push_back({type.dtype, text, {{"a", a}, {"b", b}}});
  }
  if (how == "mean" && present != 1) t.steps.push_back({type.dtype, "x / (T)count", {{"x", stack.back()}}, {{"count", static_cast<double>(present)}}});
  const bool one = t.steps.empty();
  Generated g = elementwise(t);
  return one ? std::move(g.unless_same()) : std::move(g);
}

std::vector<Kernel> join_cuda(const GpuCodeRef& code) {
  return {{.name = kAggregate, .op = kAggregate,
           .supports = [](const KernelRequest& r) {
             if (!r.join || r.join->tree.empty()) return refuse("only sums, maxima and means of towers are computed");
             return r.outputs[0].dtype == boolean && r.join->how != "max" ? refuse("booleans have no " + r.join->how) : Support{};
           },
           .prepare = [code](const KernelRequest& r) { return join_source(r.join->tree, r.join->how, r.join->present, r.outputs[0]).prepare(*code); }}};
}

}  // namespace belfry
