#include <belfry/ops/cuda/join_internal.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <belfry/executor/join_request.h>
#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>

namespace belfry {

namespace {

/// Beyond so many parts a text with a line for each keeps some of them in memory, and is long to compile.
constexpr std::size_t kMostInLine = 64;

/// A thread's stack is in registers: what moves is all of it. Parts are read four ahead.
const char* const kMany = R"(
template <int N> struct Stack {
  Pack<T, N> at[DEPTH];
  void push(const Pack<T, N>& part) {
#pragma unroll
    for (int d = DEPTH - 1; d > 0; --d) at[d] = at[d - 1];
    at[0] = part;
  }
  void join() {
#pragma unroll
    for (int i = 0; i < N; ++i) at[0].e[i] = joined(at[1].e[i], at[0].e[i]);
#pragma unroll
    for (int d = 1; d + 1 < DEPTH; ++d) at[d] = at[d + 1];
  }
};
/// Packs [first, past), of which a thread takes those that are a grid apart.
template <int N> void join_packs(const Args& a, I first, I past) {
  const unsigned short* const leaves = (const unsigned short*)&a.leaves0;
  for (I u = first + (I)blockIdx.x * blockDim.x + threadIdx.x; u < past; u += (I)gridDim.x * blockDim.x) {
    Stack<N> stack = {};
    for (int k = 0; k < PARTS; k += 4) {
      Pack<T, N> part[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) part[j] = ((const Pack<T, N>*)a.in[leaves[k + j] >> 4])[u];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (k + j >= PARTS) break;
        stack.push(part[j]);
        for (int left = leaves[k + j] & 15; left > 0; --left) stack.join();
      }
    }
    Pack<T, N> out = stack.at[0];
#pragma unroll
    for (int i = 0; i < N; ++i) out.e[i] = finished(out.e[i], a);
    ((Pack<T, N>*)a.out[0])[u] = out;
  }
}
KERNEL_AHEAD void wide(const __grid_constant__ Args a) {
  join_packs<WIDTH>(a, 0, (I)a.n / WIDTH);
  join_packs<1>(a, (I)a.n / WIDTH * WIDTH, (I)a.n);
}
KERNEL_AHEAD void narrow(const __grid_constant__ Args a) { join_packs<1>(a, 0, (I)a.n); }
)";

/// The program as one number a part, in the order in which they are pushed: which it is, and how many joins follow, 15 at most.
Generated join_of_many(const std::vector<int>& tree, std::size_t parts, const std::string& together, std::int64_t count, const LocalType& type) {
  std::vector<std::uint64_t> leaves;
  std::size_t depth = 0, deepest = 0;
  for (int step : tree) {
    if (step >= 0) leaves.push_back(static_cast<std::uint64_t>(step) << 4), ++depth;
    else ++leaves.back(), --depth;
    deepest = std::max(deepest, depth);
  }
  leaves.resize((leaves.size() + 3) / 4 * 4);  // four are read at a time
  const std::int64_t n = type.elements(), pack = std::min<std::int64_t>(4, 16 / static_cast<std::int64_t>(size_of(type.dtype)));  // what registers hold of each of twelve
  const std::string t = type_text(type.dtype), computed = type_text(is_half(type.dtype) ? f32 : type.dtype);
  Generated g(parts, 1);
  g.type("T", t).type("I", n < (std::int64_t{1} << 30) ? "int" : "i64").head(fmt::format("#define PARTS {}\n#define DEPTH {}\n#define WIDTH {}", parts, std::max<std::size_t>(deepest, 2), pack));
  g.number("n", n).real("count", static_cast<double>(count));
  for (std::size_t k = 0; k < leaves.size(); k += 4) g.number(fmt::format("leaves{}", k / 4), static_cast<std::int64_t>(leaves[k] | leaves[k + 1] << 16 | leaves[k + 2] << 32 | leaves[k + 3] << 48));
  g.body(fmt::format("inline {0} joined({0} l, {0} r) {{ const {1} a = convert<{1}>(l), b = convert<{1}>(r); return convert<{0}>({2}); }}\n", t, computed, together));
  g.body(fmt::format("inline {0} finished({0} x, const Args& a) {{ return {1}; }}\n", t, count == 1 ? "x" : fmt::format("convert<{0}>(convert<{1}>(x) / ({1})a.count)", t, computed)));
  std::vector<std::size_t> all(parts + 1);
  std::iota(all.begin(), all.end(), 0);
  g.body(kMany);
  if (n < pack) return g.launch("narrow", grid_for(n));
  return g.launch("wide", grid_for(n / pack), all, "narrow", grid_for(n));
}

}  // namespace

Generated join_source(const std::vector<int>& tree, const std::string& how, std::int64_t present, const LocalType& type) {
  bool most = how == "max";
  if (!most && how != "sum" && how != "mean") throw InternalError("no tree joins by " + how);
  ScalarTree t{{}, {}, type.shape};
  t.inputs.assign(static_cast<std::size_t>(std::count_if(tree.begin(), tree.end(), [](int s) { return s >= 0; })), stretched(type, type.shape));
  // Bools are 0 or 1, and the greater of two is their or.
  const std::string text = type.dtype == boolean ? "a || b" : most ? "a >= b || a != a ? a : b" : "a + b";
  if (t.inputs.size() > kMostInLine) return join_of_many(tree, t.inputs.size(), text, how == "mean" ? present : 1, type);
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
             if (r.join->tree.size() > 2 * kMostJoinedByGpu) return refuse(fmt::format("a GPU joins at most {} parts at once, not {}: take fewer towers", kMostJoinedByGpu, (r.join->tree.size() + 1) / 2));
             return r.outputs[0].dtype == boolean && r.join->how != "max" ? refuse("booleans have no " + r.join->how) : Support{};
           },
           .prepare = [code](const KernelRequest& r) { return join_source(r.join->tree, r.join->how, r.join->present, r.outputs[0]).prepare(*code); }}};
}

}  // namespace belfry
