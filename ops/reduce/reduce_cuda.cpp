#include <belfry/ops/cuda_kernels.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include <belfry/ops/cpu/column_sums_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/staged_internal.h>

namespace belfry {
namespace {

constexpr std::int64_t kEnough = 32 * 1024;  ///< threads that keep the memory of a GPU busy
constexpr std::int64_t kFew = 4096;          ///< blocks of a sum, below which a thread per column or lane does not

/// The axes that are reduced and those that are kept, in order; axes of size 1 do not count, neighbours of a kind are one.
struct Runs {
  struct Run { bool gone; std::int64_t size; };
  std::vector<Run> runs;
  /// (outer, reduced, inner), where the reduced axes lie together.
  bool together() const { return runs.size() < 2 || (runs.size() == 2) || (runs.size() == 3 && !runs[0].gone); }
  std::int64_t outer() const { return !runs.empty() && !runs[0].gone ? runs[0].size : 1; }
  std::int64_t n() const {
    std::int64_t n = 1;
    for (const Run& r : runs) n *= r.gone ? r.size : 1;
    return n;
  }
  std::int64_t inner() const { return runs.size() > 1 && !runs.back().gone ? runs.back().size : 1; }
};

Runs runs_of(const KernelRequest& r) {
  const Extents& shape = r.inputs[0].shape;
  std::vector<int> axes = axes_from_front(r.attributes->integers("axes"), static_cast<int>(shape.size()));
  std::vector<bool> gone(shape.size(), axes.empty());
  for (int a : axes) gone[static_cast<std::size_t>(a)] = true;
  Runs out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!out.runs.empty() && out.runs.back().gone == gone[i]) out.runs.back().size *= shape[i];
    else out.runs.push_back({gone[i], shape[i]});
  }
  if (out.runs.size() == 1 && !out.runs[0].gone) out.runs.push_back({true, 1});  // nothing is reduced: rows of one element
  return out;
}

/// A fold: what it starts with, and its text over `p` and `q` in the type A.
struct Fold {
  const char *op, *text;
  bool widened;           ///< A is double, or i64 for integers; else T (int for bools)
  double start = 0;
  bool lowest = false, highest = false, mean = false, bools = false;
};

Generated head_of(const KernelRequest& r, const Fold& f) {
  DType t = r.inputs[0].dtype;
  bool real = is_float(t) || is_half(t);
  Generated g(r);
  const std::string computed = type_text(is_half(t) ? f32 : t);  // halves are read as f32, and the result is rounded
  g.type("T", t).type("Read", computed).type("Y", r.outputs[0].dtype).type("A", f.bools ? "int" : !f.widened ? computed : real ? "double" : "i64");
  if (!real && (f.lowest || f.highest)) {
    bool narrow = t == i32;
    g.number("start", f.lowest ? (narrow ? std::numeric_limits<std::int32_t>::lowest() : std::numeric_limits<std::int64_t>::lowest())
                               : (narrow ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int64_t>::max()));
  } else {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    g.real("start", f.lowest ? -kInfinity : f.highest ? kInfinity : f.start);
  }
  g.head(fmt::format("inline A fold(A p, A q) {{ return {}; }}", f.text));
  g.head(f.mean ? "inline Y result(A sum, i64 n) { return convert<Y>((Read)((double)(Read)sum / (double)n)); }" : "inline Y result(A sum, i64) { return convert<Y>((Read)sum); }");
  g.head("inline A value(T x) { return (A)convert<Read>(x); }\ntemplate <class S> A value(S x) { return (A)x; }");
  return g;
}

const char* const kBlocks = R"(
struct Next {
  template <class S> A operator()(A sum, S x) const { return fold(sum, value(x)); }
  template <class S, int N> Pack<A, N> operator()(Pack<A, N> sum, Pack<S, N> x) const {
#pragma unroll
    for (int j = 0; j < N; ++j) sum.e[j] = fold(sum.e[j], value(x.e[j]));
    return sum;
  }
};
inline i64 rows_of(const Args& a, i64 b) { return a.n - b * a.block < a.block ? a.n - b * a.block : a.block; }
template <int W> void give(const Args& a, i64 u, Pack<A, W> sum) {
  Pack<Y, W> y;
#pragma unroll
  for (int j = 0; j < W; ++j) y.e[j] = result(sum.e[j], a.n);
  ((Pack<Y, W>*)a.out[0])[u] = y;
}
template <int W> void put(const Args& a, i64 u, Pack<A, W> sum) {
  if (a.blocks == 1) give(a, u, sum);
  else ((Pack<A, W>*)a.scratch)[u] = sum;
}
template <int W> Pack<A, W> start(const Args& a) {
  Pack<A, W> sum;
#pragma unroll
  for (int j = 0; j < W; ++j) sum.e[j] = (A)a.start;
  return sum;
}
/// A thread takes W columns of a block.
template <int W> void columns(const Args& a) {
  const i64 across = a.inner / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.items / W; u += (i64)gridDim.x * blockDim.x) {
    const i64 column = u % across, at = u / across, b = at % a.blocks, o = at / a.blocks;
    put(a, u, in_order<W == 1 ? 16 : 8>(start<W>(a), (const Pack<T, W>*)a.in[0] + (o * a.n + b * a.block) * across + column, across, rows_of(a, b), Next()));
  }
}
inline A across_lanes(A sum) {
  sum = fold(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 4));
  sum = fold(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 2));
  return fold(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, 1));
}
)";

const char* const kWhole = R"(
/// A block of one row, to the sum of those before.
struct NextRow {
  template <int N> Pack<A, N> operator()(Pack<A, N> sum, Pack<T, N> x) const {
#pragma unroll
    for (int j = 0; j < N; ++j) sum.e[j] = fold(sum.e[j], fold(first, value(x.e[j])));
    return sum;
  }
  A first;
};
/// A thread takes W columns of all blocks.
template <int W> void whole(const Args& a) {
  const i64 across = a.inner / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.outer * across; u += (i64)gridDim.x * blockDim.x) {
    const Pack<T, W>* x = (const Pack<T, W>*)a.in[0] + u / across * a.n * across + u % across;
    const int kAhead = W == 1 ? 16 : W == 8 ? 4 : 8;
    Pack<A, W> sum = in_order<kAhead>(start<W>(a), x, across, rows_of(a, 0), Next());
    if (a.block == 1) sum = in_order<kAhead>(sum, x + across, across, a.n - 1, NextRow{(A)a.start});
    for (i64 b = 1; a.block > 1 && b < a.blocks; ++b) {
      const Pack<A, W> more = in_order<kAhead>(start<W>(a), x + b * a.block * across, across, rows_of(a, b), Next());
#pragma unroll
      for (int j = 0; j < W; ++j) sum.e[j] = fold(sum.e[j], more.e[j]);
    }
    give(a, u, sum);
  }
}
)";

const char* const kLanes = R"(
KERNEL_AHEAD void lanes(const Args a) {
  const int lane = threadIdx.x % 8;
  for (i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x / 32 * 32; first < a.items * 8; first += (i64)gridDim.x * blockDim.x) {
    const i64 u = (first + threadIdx.x % 32) / 8, b = u % a.blocks, o = u / a.blocks;
    A sum = (A)a.start;
    if (u < a.items) sum = in_order<16>(sum, (const T*)a.in[0] + o * a.n + b * a.block + lane, 8, (rows_of(a, b) - lane + 7) / 8, Next());
    sum = across_lanes(sum);
    if (u < a.items && lane == 0) put(a, u, Pack<A, 1>{{sum}});
  }
}
)";

const char* const kFewColumns = R"(
/// A block of threads per block of few columns, or of eight lanes.
KERNEL_AHEAD void few(const Args a) {
  const int width = a.inner == 1 ? 8 : (int)a.inner;
  for (i64 part = blockIdx.x; part < a.outer * a.blocks; part += gridDim.x) {
    const i64 b = part % a.blocks, o = part / a.blocks;
    const T* x = (const T*)a.in[0] + (o * a.n + b * a.block) * a.inner;
    A sum = staged<T>((A)a.start, rows_of(a, b) * a.inner, width, [&](i64 k, int c) { return x[k * width + c]; }, Next());
    if (threadIdx.x >= 32) continue;
    if (a.inner == 1) sum = across_lanes(sum);
    if (threadIdx.x < a.inner) put(a, part * a.inner + threadIdx.x, Pack<A, 1>{{sum}});
  }
}
)";

const char* const kJoin = R"(
/// The blocks' sums, of up to four columns side by side.
KERNEL_AHEAD void join(const Args a) {
  const i64 tiles = (a.inner + 3) / 4;
  for (i64 item = blockIdx.x; item < a.outer * tiles; item += gridDim.x) {
    const i64 o = item / tiles, c = item % tiles * 4 + threadIdx.x % 4;
    const A sum = join_groups((const A*)a.scratch + o * a.blocks * a.inner + c, a.blocks, a.inner, c < a.inner, Next());
    if (threadIdx.x < 4 && c < a.inner) ((Y*)a.out[0])[o * a.inner + c] = result(sum, a.n);
  }
}
)";

/// So many columns that a thread of each keeps the GPU busy, and blocks that are added one by one; their sums are not stored.
bool are_many(const Runs& s) { return s.outer() * s.inner() >= kEnough && s.inner() > 1 && ColumnSums(s.n(), s.inner()).group == 1; }

/// In the CPU's order, which `ColumnSums` tells.
Generated in_blocks(const KernelRequest& r, const Fold& f, const Runs& s) {
  ColumnSums sums(s.n(), s.inner());
  const std::int64_t parts = s.outer() * sums.blocks, items = parts * s.inner();
  const std::int64_t lanes = s.inner() > 1 ? s.inner() : 8, rows = std::min(s.n(), sums.block) * s.inner() / lanes;
  std::int64_t width = std::min<std::int64_t>(8, 16 / static_cast<std::int64_t>(size_of(r.inputs[0].dtype)));
  while (s.inner() % width != 0) width /= 2;
  const bool many = sums.blocks > 1 && are_many(s);
  const std::int64_t threads = many ? s.outer() * s.inner() : items;
  if (threads / width < kEnough) width = 1;
  Generated g = head_of(r, f);
  g.number("items", items).number("n", s.n()).number("inner", s.inner()).number("block", sums.block).number("blocks", sums.blocks).number("outer", s.outer());
  g.head(kStaged).body(kBlocks);
  if (!many && s.inner() <= 32 && parts <= kFew && rows >= 64) {
    g.entries(kFewColumns).launch("few", {parts, 256});
  } else if (s.inner() == 1) {
    g.entries(kLanes).launch("lanes", grid_for(items * 8, 128));
  } else {
    const char* pass = many ? "whole" : "columns";
    g.body(many ? kWhole : "").entries(fmt::format("KERNEL_AHEAD void narrow(const Args a) {{ {}<1>(a); }}\n", pass));
    if (width == 1) g.launch("narrow", grid_for(threads, 128));
    else g.entries(fmt::format("KERNEL_AHEAD void wide(const Args a) {{ {}<{}>(a); }}\n", pass, width)).launch("wide", grid_for(threads / width, 128), {0, r.inputs.size()}, "narrow", grid_for(threads, 128));
  }
  if (sums.blocks > 1 && !many) g.entries(kJoin).launch("join", {std::min<std::int64_t>(s.outer() * up(s.inner(), 4), 16384), 256});
  return g;
}

/// Axes that lie apart: a thread per output, the terms in their order.
Generated apart(const KernelRequest& r, const Fold& f, const Runs& s) {
  Generated g = head_of(r, f);
  std::int64_t outputs = r.outputs[0].elements(), stride = r.inputs[0].elements();
  std::string kept, reduced, close, at = "at";
  g.number("n", s.n()).number("outputs", outputs);
  for (std::size_t i = s.runs.size(); i-- > 0;)
    if (!s.runs[i].gone) kept += fmt::format("    at += left % a.m{0} * a.s{0}; left /= a.m{0};\n", i);
  for (std::size_t i = 0; i < s.runs.size(); ++i) {
    stride /= s.runs[i].size;
    g.number(fmt::format("m{}", i), s.runs[i].size).number(fmt::format("s{}", i), stride);
    if (!s.runs[i].gone) continue;
    reduced += fmt::format("    for (i64 i{0} = 0; i{0} < a.m{0}; ++i{0})\n", i);
    at += fmt::format(" + i{0} * a.s{0}", i);
  }
  g.body(fmt::format("KERNEL void apart(const Args a) {{\n  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.outputs; u += (i64)gridDim.x * blockDim.x) {{\n"
                     "    i64 left = u, at = 0;\n{}    A sum = (A)a.start;\n{}      sum = fold(sum, value(((const T*)a.in[0])[{}]));\n    ((Y*)a.out[0])[u] = result(sum, a.n);\n  }}\n}}\n", kept, reduced, at));
  return g.launch("apart", grid_for(outputs, 64));
}

Kernel kernel(const GpuCodeRef& code, Fold f, const std::vector<DType>& dtypes) {
  return {.name = "nvrtc_" + std::string(f.op), .op = f.op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes_on_gpu(r, dtypes);
            if (r.inputs[0].elements() == 0) return refuse("there is nothing to reduce");
            s.in_place = false;
            if (Runs x = runs_of(r); s.ok && x.together() && !are_many(x)) s.scratch_bytes = x.outer() * ColumnSums(x.n(), x.inner()).scratch_bytes();
            return s;
          },
          .prepare = [code, f](const KernelRequest& r) {
            Runs s = runs_of(r);
            return (s.together() ? in_blocks(r, f, s) : apart(r, f, s)).prepare(*code);
          },
          .halves = std::find(dtypes.begin(), dtypes.end(), f16) != dtypes.end()};
}

/// The greatest, then the sum of exponentials below it.
Kernel logsumexp(const GpuCodeRef& code) {
  return {.name = "nvrtc_logsumexp", .op = "reduce_logsumexp",
          .supports = [](const KernelRequest& r) {
            if (!runs_of(r).together() || r.inputs[0].elements() == 0) return refuse("the reduced axes do not lie together, or hold nothing");
            return takes_on_gpu(r, {f32, f64});
          },
          .prepare = [code](const KernelRequest& r) {
            Runs s = runs_of(r);
            Generated g(r);
            Grid grid = g.type("T", r.inputs[0].dtype).lines(s.outer(), s.n(), s.inner());
            g.real("low", -std::numeric_limits<double>::infinity()).body(R"(
KERNEL void logsumexp(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0] + line / a.inner * a.n * a.inner + line % a.inner;
    T top = (T)a.low, sum = 0;
    EACH_OF(k, a.n) top = Greater()(top, x[k * a.inner]);
    top = across(top, Greater());
    if (!(top - top == 0)) top = 0;
    EACH_OF(k, a.n) sum += exp(x[k * a.inner] - top);
    sum = across(sum, Add());
    if (threadIdx.x % WIDTH == 0) ((T*)a.out[0])[line] = log(sum) + top;
  }
}
)");
            return g.launch("logsumexp", grid).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> reduce_cuda(const GpuCodeRef& code) {
  const std::vector<DType> numbers = {f32, f64, i32, i64, f16, bf16};
  return {kernel(code, {"reduce_sum", "p + q", true}, numbers),
          kernel(code, {.op = "reduce_mean", .text = "p + q", .widened = true, .mean = true}, {f32, f64, f16, bf16}),
          kernel(code, {.op = "reduce_max", .text = "p >= q || p != p ? p : q", .widened = false, .lowest = true}, numbers),
          kernel(code, {.op = "reduce_min", .text = "p <= q || p != p ? p : q", .widened = false, .highest = true}, numbers),
          kernel(code, {"reduce_prod", "p * q", true, 1}, numbers),
          kernel(code, {.op = "reduce_any", .text = "p | q", .widened = false, .bools = true}, {boolean}),
          kernel(code, {.op = "reduce_all", .text = "p & q", .widened = false, .start = 1, .bools = true}, {boolean}),
          logsumexp(code)};
}

}  // namespace belfry
