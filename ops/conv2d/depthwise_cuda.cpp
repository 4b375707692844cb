#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/fusion_group.h>
#include <belfry/ops/conv2d/depthwise_cuda_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>

namespace belfry {

namespace {

/// N elements side by side, in packs of no more than 16 bytes, and element k as it is computed with.
const char* const kElements = R"(
template <class E, int N> struct Elements {
  enum { M = sizeof(E) * N > 16 ? 16 / (int)sizeof(E) : N };
  Pack<E, M> packs[N / M];
  E& at(int k) { return packs[k / M].e[k % M]; }
  const E& at(int k) const { return packs[k / M].e[k % M]; }
};
template <class E, int N> E widened(const Elements<E, N>& v, int k) { return v.at(k); }
template <int N> float widened(const Elements<f16, N>& v, int k) { return convert<float>(v.at(k)); }
template <int N> float widened(const Elements<bf16, N>& v, int k) {
  if constexpr (N == 1) return convert<float>(v.at(k));
  u32 two;  // of which each is one instruction away
  memcpy(&two, (const char*)&v + k / 2 * sizeof two, sizeof two);
  return __uint_as_float(k % 2 ? two & 0xFFFF0000u : two << 16);
}
/// Halves are rounded side by side: a NaN among them is rare.
template <class E, class C, int N> void narrow_to(Elements<E, N>& out, const C (&y)[N]) {
  if constexpr (sizeof(E) == sizeof(C)) {
#pragma unroll
    for (int k = 0; k < N; ++k) out.at(k) = y[k];
  } else {
    bool numbers = true;
#pragma unroll
    for (int k = 0; k < N; ++k) numbers = numbers && y[k] == y[k], out.at(k) = Convert<E, C>::number(y[k]);
    if (numbers) return;
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (y[k] != y[k]) out.at(k) = Convert<E, C>::nan(y[k]);
  }
}
)";
/// What moves over the picture `from`, a window per element of `to`. The filter is read from behind for gradients of stride 1. A row's pixels are read ahead, at the picture's edge where they lie
/// outside, if what a tree needs of a pixel is one value. What is made of a pixel serves ROWS rows of windows; where there are several, taps stay in registers, and where all of a row lies INSIDE none is asked.
const char* const kSlide = R"(
template <int N> void read_taps(F (&w)[WINDOW_W][N], const Elements<T, N>* filter, int i, I packs) {
#pragma unroll
  for (int j = 0; j < WINDOW_W; ++j) {
    const Elements<T, N> tap = filter[(FLIPPED ? (WINDOW_H - 1 - i) * WINDOW_W + WINDOW_W - 1 - j : i * WINDOW_W + j) * packs];
#pragma unroll
    for (int k = 0; k < N; ++k) w[j][k] = widened(tap, k);
  }
}
template <bool INSIDE, int N> void windows(const Args& a, I c, I q, I p, I picture) {
  const I packs = (I)a.channels / N, toh = (I)a.toh, tow = (I)a.tow, fromh = (I)a.fromh, fromw = (I)a.fromw, left = q * STRIDE_W - (I)a.before_w;
  const Elements<T, N>* filter = (const Elements<T, N>*)a.in[FILTER] + c;
  const Source<N> source(a, c);
  const Beside<N> beside(a, c);
  F sum[ROWS][RUN][N] = {}, w[WINDOW_H][WINDOW_W][N];
#pragma unroll
  for (int i = 0; ROWS > 1 && i < WINDOW_H; ++i) read_taps(w[i], filter, i, packs);
#pragma unroll
  for (int s = 0; s < SPAN_H; ++s) {
    const I row = p * STRIDE_H - (I)a.before_h + s, line = (picture * fromh + row) * fromw;
    bool of_windows = false;
#pragma unroll
    for (int o = 0; o < ROWS; ++o) of_windows = of_windows || (s >= o * STRIDE_H && (s - o * STRIDE_H) % DILATION_H == 0 && (s - o * STRIDE_H) / DILATION_H < WINDOW_H);
    if (of_windows && inside(row, fromh)) {
      typename Source<N>::Raw v[SPAN];
#pragma unroll
      for (int t = 0; READS_AHEAD && t < SPAN; ++t) v[t] = source.read(a, (line + (INSIDE ? left + t : nearest(left + t, fromw))) * packs + c);
      if (ROWS == 1) read_taps(w[s / DILATION_H], filter, s / DILATION_H, packs);
#pragma unroll
      for (int t = 0; t < SPAN; ++t) {
        if (!INSIDE && !inside(left + t, fromw)) continue;
        if (!READS_AHEAD) v[t] = source.read(a, (line + left + t) * packs + c);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const F x = source.made(a, v[t], k);
#pragma unroll
          for (int o = 0; o < ROWS; ++o) {
            const int i = (s - o * STRIDE_H) / DILATION_H;
            if (s < o * STRIDE_H || (s - o * STRIDE_H) % DILATION_H || i >= WINDOW_H) continue;
#pragma unroll
            for (int r = 0; r < RUN; ++r) {
#pragma unroll
              for (int j = 0; j < WINDOW_W; ++j)
                if (t == r * STRIDE_W + j * DILATION_W) sum[o][r][k] = fma(x, w[i][j][k], sum[o][r][k]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int o = 0; o < ROWS; ++o) {
      if (s != o * STRIDE_H + (WINDOW_H - 1) * DILATION_H || p + o >= toh) continue;
#pragma unroll
      for (int r = 0; r < RUN; ++r) {
        if (q + r >= tow) break;
        beside.store(a, ((picture * toh + p + o) * tow + q + r) * packs + c, sum[o][r]);
      }
    }
  }
}
template <int N> void slide(const Args& a) {
  const I packs = (I)a.channels / N, runs = ((I)a.tow + RUN - 1) / RUN, high = ((I)a.toh + ROWS - 1) / ROWS;
  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.pictures * high * runs * packs; u += (I)gridDim.x * blockDim.x) {
    const I c = u % packs, q = u / packs % runs * RUN, p = u / packs / runs % high * ROWS, picture = u / packs / runs / high, left = q * STRIDE_W - (I)a.before_w;
    if (ROWS > 1 && left >= 0 && left + SPAN <= (I)a.fromw) windows<true, N>(a, c, q, p, picture);
    else windows<false, N>(a, c, q, p, picture);
  }
}
)";
auto core_of(const KernelRequest& r) { return std::find_if(r.members.begin(), r.members.end(), [](const Node* m) { return !fits_trees(*m->op); }); }

/// A convolution, alone or in a group, apart from the tree that makes its x.
struct DepthwiseGroup {
  explicit DepthwiseGroup(const KernelRequest& r) : own(r) {
    const auto c = static_cast<std::size_t>(core_of(r) - r.members.begin());
    if (c == 0) return;
    before = r;
    before.members.resize(c), before.inner.resize(c), before.places.resize(c);
    before.inputs.resize(filter = outside(before.inner));
    before.outputs = {inner_type(r, r.members[c - 1]->types[0])}, before.output_types = {r.members[c - 1]->types[0]};
    auto drop = [](auto& all, std::size_t first) { all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first)); };
    drop(own.members, c), drop(own.inner, c), drop(own.places, c), drop(own.inputs, filter);
    own.inner.front() = {"", ""}, own.inputs.insert(own.inputs.begin(), before.outputs[0]);
  }
  static std::size_t outside(const std::vector<std::vector<std::string>>& inner) {
    std::size_t out = 0;
    for (const auto& of : inner) out += static_cast<std::size_t>(std::count(of.begin(), of.end(), ""));
    return out;
  }
  KernelRequest before;    ///< without members: x is read as it lies
  KernelRequest own;       ///< the convolution, and the tree behind it
  std::size_t filter = 1;  ///< where the request has it; behind it stands what the second tree reads
};

/// What a tree reads for N channels: one value, or one of each, once per thread; else of where it stands.
struct Operands {
  void add(const LocalType& t, std::size_t i) {
    const std::string type = type_text(t.dtype), pack = fmt::format("Elements<{}, N>", type), name = fmt::format("e{}", i);
    if (t.shape.empty()) values += fmt::format("  const Elements<{}, 1> {};\n", type, name), kept += fmt::format("{}{}(*(const Elements<{}, 1>*)a.in[{}])", kept.empty() ? " : " : ", ", name, type, i);
    else if (t.shape.size() == 1) values += fmt::format("  const {} {};\n", pack, name), kept += fmt::format("{}{}(((const {}*)a.in[{}])[c])", kept.empty() ? " : " : ", ", name, pack, i);
    else raw += fmt::format(" {} {};", pack, name), read += fmt::format("{}((const {}*)a.in[{}])[at]", read.empty() ? "" : ", ", pack, i), ++whole;
    elements += fmt::format("widened({}{}, {}), ", t.shape.size() > 1 ? "raw." : "", name, t.shape.empty() ? "0" : "k");
  }
  std::string values, kept, raw, read, elements;
  int whole = 0;  ///< are read where they stand
  /// The struct that reads them.
  std::string head(const std::string& name) const {
    return fmt::format("template <int N> struct {} {{\n{}  struct Raw {{{} }};\n  {}(const Args& a, I c){} {{}}\n  Raw read(const Args& a, I at) const {{ return {{{}}}; }}\n", name, values, raw, name, kept, read);
  }
};
Operands operands_of_x(const DepthwiseGroup& r) {
  Operands o;
  if (r.before.members.empty()) o.add(r.own.inputs[0], 0);
  else for (std::size_t i = 0; i < r.filter; ++i) o.add(r.before.inputs[i], i);
  return o;
}

/// N elements of x: as they lie, or what a tree makes of what it reads.
std::string source_text(const DepthwiseGroup& r, Generated& g) {
  const bool tree = !r.before.members.empty();
  const Operands o = operands_of_x(r);
  return (tree ? element_text(tree_of_members(r.before), g, "_before", true) : "") + o.head("Source") + fmt::format("  F made(const Args& a, const Raw& raw, int k) const {{ return {}; }}\n}};\n", tree ? fmt::format("apply_before({}a)", o.elements) : "widened(raw.e0, k)");
}

/// What becomes of N sums: the result's elements, or what a tree makes of them and of what it reads beside.
std::string beside_text(const DepthwiseGroup& r, Generated& g) {
  const bool tree = r.own.members.size() > 1;
  Operands o;
  for (std::size_t i = 2; tree && i < r.own.inputs.size(); ++i) o.add(r.own.inputs[i], r.filter + i - 1);
  const std::string type = type_text(r.own.outputs[0].dtype);
  return (tree ? element_text(tree_of_members(r.own, r.own.members.front()), g, "", true) : "") + o.head("Beside") +
         fmt::format("  void store(const Args& a, I at, const F (&sum)[N]) const {{\n    const Raw raw = read(a, at);\n    {} y[N];\n    Elements<{}, N> out;\n#pragma unroll\n    for (int k = 0; k < N; ++k) y[k] = {};\n    narrow_to(out, y);\n    ((Elements<{}, N>*)a.out[0])[at] = out;\n  }}\n}};\n",
                     is_half(r.own.outputs[0].dtype) ? "float" : type, type, tree ? fmt::format("apply(rounded<T>(sum[k]), {}a)", o.elements) : "sum[k]", type);
}

/// Of more inputs the values per channel leave 80 registers too few for sums and taps.
constexpr std::size_t kMostOfThree = 5;

/// `r` may be a group's. A thread makes several neighbours in a row of pictures, so that what they share is read once; where a tree makes x, in several rows, of fewer channels.
Generated sliding(const KernelRequest& r, const Depthwise& d, const Extents& from, const Extents& to, bool flipped) {
  const DepthwiseGroup whole(r);
  const DType t = whole.own.inputs[0].dtype;
  const bool tree = !whole.before.members.empty(), few_taps = d.s.window_h * d.s.window_w <= 9;
  const std::int64_t high = flipped ? 1 : d.s.stride_h, wide = flipped ? 1 : d.s.stride_w, rows = tree && few_taps ? std::min<std::int64_t>(4, to[1]) : 1, width = rows > 1 ? (t == f64 ? 1 : 2) : pack_of(t);
  const std::int64_t run = wide <= (rows > 1 ? 2 : 1) && to[2] >= 4 ? 4 : std::min<std::int64_t>(2, to[2]), runs = up(to[2], run) * up(to[1], rows) * to[0];
  Generated g = depthwise_head(r, d, t);
  strides(g, high, wide).head(fmt::format("#define ROWS {}\n#define RUN {}\n#define SPAN_H {}\n#define SPAN {}\n#define FLIPPED {:d}\n#define FILTER {}\n#define READS_AHEAD {:d}", rows, run,
                     (rows - 1) * high + spread(d.s.window_h, d.s.dilation_h), (run - 1) * wide + spread(d.s.window_w, d.s.dilation_w), flipped, whole.filter, operands_of_x(whole).whole == 1));
  g.number("fromh", from[1]).number("fromw", from[2]).number("toh", to[1]).number("tow", to[2]);
  g.number("before_h", flipped ? (d.s.window_h - 1) * d.s.dilation_h - d.s.h.before : d.s.h.before).number("before_w", flipped ? (d.s.window_w - 1) * d.s.dilation_w - d.s.w.before : d.s.w.before);
  g.body(kElements).body(source_text(whole, g)).body(beside_text(whole, g)).body(kSlide);
  g.entries(fmt::format("{0} void wide(const Args a) {{ slide<{1}>(a); }}\n{0} void narrow(const Args a) {{ slide<1>(a); }}\n", !tree ? "KERNEL" : few_taps && t != f64 && r.inputs.size() <= kMostOfThree ? "KERNEL_THREE" : "KERNEL_AHEAD", width));
  if (width == 1 || d.channels % width != 0) return g.launch("narrow", grid_for(runs * d.channels));
  std::vector<std::size_t> packed = {r.inputs.size()};
  for (std::size_t i = 0; i < (r.members.empty() ? 2 : r.inputs.size()); ++i)
    if (!r.inputs[i].shape.empty()) packed.push_back(i);
  return g.launch("wide", grid_for(runs * d.channels / width), packed, "narrow", grid_for(runs * d.channels));
}

/// The request itself, or of a group that of its convolution.
KernelRequest convolution_of(const KernelRequest& r) {
  KernelRequest own = DepthwiseGroup(r).own;
  if (r.members.empty()) return own;
  const Node& n = *own.members.front();
  own.op = n.op->name, own.def = n.op, own.attributes = &n.attributes;
  own.inputs.resize(2);
  own.outputs[0].dtype = n.types[0].dtype;
  return own;
}

Generated forward(const KernelRequest& r) {
  const KernelRequest own = convolution_of(r);
  const Depthwise d(*own.attributes, own.inputs[0], own.inputs[1], own.outputs[0]);
  return sliding(r, d, d.x, d.y, false);
}

Generated input_gradient(const KernelRequest& r) {
  const Depthwise d(*r.attributes, r.outputs[0], r.inputs[1], r.inputs[0]);
  return d.s.stride_h == 1 && d.s.stride_w == 1 ? sliding(r, d, d.y, d.x, true) : depthwise_gradient_of_steps(r, d);
}

std::string objection(const KernelRequest& r, const LocalType& x, const LocalType& filter, const LocalType& y) {
  if (std::string why = no_depthwise(*r.attributes, x.shape[3], y.shape[3], filter.shape[0], filter.shape[1]); !why.empty()) return why;
  if (x.dtype != y.dtype || (r.op != "conv2d_filter_gradient" && filter.dtype != x.dtype)) return "its tensors are of several dtypes";
  return x.elements() && y.elements() ? "" : "there are no elements";
}

/// Whether all members of the tree that makes x, or reads y, have its shape, and what they read from outside, from input `first` on, has that too, or a value per channel, or is one.
std::string objection_to_tree(const KernelRequest& r, const Node* core, std::string_view name, const Shape& shape, const Extents& whole, std::size_t first) {
  for (const Node* m : r.members)
    if (m != core && (!fits_trees(*m->op) || m->types[0].shape != shape)) return fmt::format("its members are not all elementwise, of the shape of its conv2d's {}", name);
  for (std::size_t i = first; i < r.inputs.size(); ++i)
    if (const Extents& s = r.inputs[i].shape; s != whole && !s.empty() && s != Extents{whole[3]}) return fmt::format("what makes or reads its {} has neither that shape nor a value per channel", name);
  return "";
}

/// A conv2d, a tree that makes its x, and one that reads its y; one of them may be missing.
Support takes_group(const KernelRequest& r, const KernelTable& table) {
  const auto core = core_of(r);
  const auto c = static_cast<std::size_t>(core - r.members.begin());
  if (r.members.size() < 2 || r.inner.size() != r.members.size() || core == r.members.end() || (*core)->op->name != "conv2d" || DepthwiseGroup::outside(r.inner) != r.inputs.size()) return refuse("it has no conv2d beside its elementwise members");
  if (r.inner[c] != std::vector<std::string>{c ? r.members[c - 1]->name : "", ""}) return refuse("its conv2d reads something else than what the members before it make");
  for (std::size_t m = 0; m < r.members.size(); ++m)
    for (const std::string& inner : r.inner[m])
      if (m != c && !inner.empty() && std::none_of(m < c ? r.members.begin() : core, r.members.begin() + static_cast<std::ptrdiff_t>(m), [&](const Node* n) { return n->name == inner; }))
        return refuse(fmt::format("its '{}' reads '{}' from beyond its conv2d", r.members[m]->name, inner));
  const DepthwiseGroup whole(r);
  const KernelRequest own = convolution_of(r);
  if (const LocalType& x = own.inputs[0]; c > 0) {
    if (x.shape.size() != 4) return refuse("its x has not the rows of its y");
    if (std::string why = objection_to_tree(whole.before, nullptr, "x", r.members[c - 1]->types[0].shape, x.shape, 0); !why.empty()) return refuse(why);
    if (Support s = has_expressions(whole.before, table); !s.ok) return s;
  }
  if (std::string why = objection_to_tree(whole.own, *core, "y", (*core)->types[0].shape, own.outputs[0].shape, 2); !why.empty()) return refuse(why);
  if (Support s = has_expressions(whole.own, table, *core); !s.ok) return s;
  if (std::string why = objection(own, own.inputs[0], own.inputs[1], own.outputs[0]); !why.empty()) return refuse(why);
  return takes_on_gpu(own, {f32, f64, f16, bf16});
}

}  // namespace

Kernel depthwise_with_elementwise(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  return {.name = "nvrtc_depthwise_conv2d", .op = kWithElementwise, .supports = [table](const KernelRequest& r) { return takes_group(r, *table); },
          .prepare = [code](const KernelRequest& r) { return forward(r).prepare(*code); }, .halves = true};
}

std::vector<Kernel> conv2d_generated_cuda(const GpuCodeRef& code) {
  struct Direction {
    const char* op;
    std::size_t x, filter, y;  // of inputs; the output is 9
    Generated (*made)(const KernelRequest&);
  };
  std::vector<Kernel> out;
  for (const Direction& d : {Direction{"conv2d", 0, 1, 9, forward}, Direction{"conv2d_input_gradient", 9, 1, 0, input_gradient}, Direction{"conv2d_filter_gradient", 0, 9, 1, depthwise_filter_gradient}})
    out.push_back({.name = "nvrtc_depthwise_conv2d", .op = d.op,
                   .supports = [d](const KernelRequest& r) {
                     auto type = [&](std::size_t i) -> const LocalType& { return i == 9 ? r.outputs[0] : r.inputs[i]; };
                     if (std::string why = objection(r, type(d.x), type(d.filter), type(d.y)); !why.empty()) return refuse(why);
                     Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
                     s.in_place = false;
                     if (d.filter == 9) s.scratch_bytes = depthwise_filter_gradient_scratch(r);
                     return s;
                   },
                   .prepare = [code, d](const KernelRequest& r) { return d.made(r).prepare(*code); },
                   .halves = true});
  return out;
}

}  // namespace belfry
