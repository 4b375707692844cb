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

/// N elements side by side, in packs of no more than 16 bytes.
const char* const kElements = R"(
template <class E, int N> struct Elements {
  enum { M = sizeof(E) * N > 16 ? 16 / (int)sizeof(E) : N };
  Pack<E, M> packs[N / M];
  E& at(int k) { return packs[k / M].e[k % M]; }
  const E& at(int k) const { return packs[k / M].e[k % M]; }
};
)";
/// What moves over the picture `from`, a window per element of `to`. The filter is read from behind for gradients of stride 1. A row's pixels are read ahead, at the picture's edge where they lie
/// outside; a tree that makes them wants the registers.
const char* const kSlide = R"(
template <int N> void slide(const Args& a) {
  const I packs = (I)a.channels / N, toh = (I)a.toh, tow = (I)a.tow, fromh = (I)a.fromh, fromw = (I)a.fromw, runs = (tow + RUN - 1) / RUN;
  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.pictures * toh * runs * packs; u += (I)gridDim.x * blockDim.x) {
    const I c = u % packs, q = u / packs % runs * RUN, p = u / packs / runs % toh, picture = u / packs / runs / toh;
    const Pack<T, N>* filter = (const Pack<T, N>*)a.in[FILTER] + c;
    const Source<N> source(a, c);
    F sum[RUN][N] = {};
#pragma unroll
    for (int i = 0; i < WINDOW_H; ++i) {
      const I row = p * STRIDE_H - (I)a.before_h + i * DILATION_H, line = (picture * fromh + row) * fromw;
      if (!inside(row, fromh)) continue;
      F w[WINDOW_W][N];
      Pack<T, N> v[SPAN];
#pragma unroll
      for (int t = 0; READS_AHEAD && t < SPAN; ++t) v[t] = source.load(a, (line + nearest(q * STRIDE_W - (I)a.before_w + t, fromw)) * packs + c);
#pragma unroll
      for (int j = 0; j < WINDOW_W; ++j) {
        const Pack<T, N> tap = filter[(FLIPPED ? (WINDOW_H - 1 - i) * WINDOW_W + WINDOW_W - 1 - j : i * WINDOW_W + j) * packs];
#pragma unroll
        for (int k = 0; k < N; ++k) w[j][k] = convert<F>(tap.e[k]);
      }
#pragma unroll
      for (int t = 0; t < SPAN; ++t) {
        const I column = q * STRIDE_W - (I)a.before_w + t;
        if (!inside(column, fromw)) continue;
        if (!READS_AHEAD) v[t] = source.load(a, (line + column) * packs + c);
#pragma unroll
        for (int r = 0; r < RUN; ++r) {
#pragma unroll
          for (int j = 0; j < WINDOW_W; ++j) {
            if (t != r * STRIDE_W + j * DILATION_W) continue;
#pragma unroll
            for (int k = 0; k < N; ++k) sum[r][k] = fma(value(v[t].e[k]), w[j][k], sum[r][k]);
          }
        }
      }
    }
    const Beside<N> beside(a, c);
#pragma unroll
    for (int r = 0; r < RUN; ++r) {
      if (q + r >= tow) break;
      beside.store(a, ((picture * toh + p) * tow + q + r) * packs + c, sum[r]);
    }
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
    if (t.shape.empty()) values += fmt::format("  const {} {};\n", type, name), kept += fmt::format("{}{}(*(const {}*)a.in[{}])", kept.empty() ? " : " : ", ", name, type, i);
    else if (t.shape.size() == 1) values += fmt::format("  const {} {};\n", pack, name), kept += fmt::format("{}{}(((const {}*)a.in[{}])[c])", kept.empty() ? " : " : ", ", name, pack, i);
    else read += fmt::format("    const {0} {1} = ((const {0}*)a.in[{2}])[at];\n", pack, name, i);
    elements += t.shape.empty() ? name + ", " : name + ".at(k), ";
  }
  std::string values, kept, read, elements;
};

/// N elements of x: as they lie, or what a tree makes of what it reads.
std::string source_text(const DepthwiseGroup& r, Generated& g) {
  Operands o;
  if (r.before.members.empty()) return "template <int N> struct Source {\n  Source(const Args&, I) {}\n  Pack<T, N> load(const Args& a, I at) const { return ((const Pack<T, N>*)a.in[0])[at]; }\n};\n";
  for (std::size_t i = 0; i < r.filter; ++i) o.add(r.before.inputs[i], i);
  return element_text(tree_of_members(r.before), g, "_before") +
         fmt::format("template <int N> struct Source {{\n{}  Source(const Args& a, I c){} {{}}\n  Pack<T, N> load(const Args& a, I at) const {{\n{}    Pack<T, N> x;\n#pragma unroll\n    for (int k = 0; k < N; ++k) x.e[k] = apply_before({}a);\n"
                     "    return x;\n  }}\n}};\n", o.values, o.kept, o.read, o.elements);
}

/// What becomes of N sums: the result's elements, or what a tree makes of them and of what it reads beside.
std::string beside_text(const DepthwiseGroup& r, Generated& g) {
  const bool tree = r.own.members.size() > 1;
  Operands o;
  for (std::size_t i = 2; tree && i < r.own.inputs.size(); ++i) o.add(r.own.inputs[i], r.filter + i - 1);
  const std::string y = "convert<T>(sum[k])", type = type_text(r.own.outputs[0].dtype);
  return (tree ? element_text(tree_of_members(r.own, r.own.members.front()), g) : "") +
         fmt::format("template <int N> struct Beside {{\n{}  Beside(const Args& a, I c){} {{}}\n  void store(const Args& a, I at, const F (&sum)[N]) const {{\n{}    Elements<{}, N> out;\n#pragma unroll\n"
                     "    for (int k = 0; k < N; ++k) out.at(k) = {};\n    ((Elements<{}, N>*)a.out[0])[at] = out;\n  }}\n}};\n",
                     o.values, o.kept, o.read, type, tree ? fmt::format("apply({}, {}a)", y, o.elements) : y, type);
}

/// `r` may be a group's. A thread makes several neighbours in a row of pictures, so that what they share is read once.
Generated sliding(const KernelRequest& r, const Depthwise& d, const Extents& from, const Extents& to, bool flipped) {
  const DepthwiseGroup whole(r);
  const DType t = whole.own.inputs[0].dtype;
  const std::int64_t high = flipped ? 1 : d.s.stride_h, wide = flipped ? 1 : d.s.stride_w, run = wide == 1 && to[2] >= 4 ? 4 : std::min<std::int64_t>(2, to[2]), width = pack_of(t), runs = up(to[2], run) * to[1] * to[0];
  Generated g = depthwise_head(r, d, t);
  g.head(fmt::format("#define STRIDE_H (I){}\n#define STRIDE_W (I){}\n#define RUN {}\n#define SPAN {}\n#define FLIPPED {:d}\n#define FILTER {}\n#define READS_AHEAD {:d}", high, wide, run, (run - 1) * wide + spread(d.s.window_w, d.s.dilation_w), flipped, whole.filter, whole.before.members.empty()));
  g.number("fromh", from[1]).number("fromw", from[2]).number("toh", to[1]).number("tow", to[2]);
  g.number("before_h", flipped ? (d.s.window_h - 1) * d.s.dilation_h - d.s.h.before : d.s.h.before).number("before_w", flipped ? (d.s.window_w - 1) * d.s.dilation_w - d.s.w.before : d.s.w.before);
  g.body(kElements).body(source_text(whole, g)).body(beside_text(whole, g)).body(kSlide);
  g.entries(fmt::format("{0} void wide(const Args a) {{ slide<16 / sizeof(T)>(a); }}\n{0} void narrow(const Args a) {{ slide<1>(a); }}\n", !whole.before.members.empty() && (t == f64 || d.s.window_h * d.s.window_w > 9) ? "KERNEL_AHEAD" : "KERNEL"));
  if (d.channels % width != 0) return g.launch("narrow", grid_for(runs * d.channels));
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
