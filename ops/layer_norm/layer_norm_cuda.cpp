#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/grouped_norm_internal.h>
#include <belfry/ops/cuda/staged_internal.h>
#include <belfry/ops/layer_norm/formulas.h>

namespace belfry {
namespace {

/// Moments of a group are taken by a warp or a block, in the type of x (f32 for halves); sums over examples in f64, in blocks of rows that depend on the shape alone.
struct Norm : NormLayout {
  explicit Norm(const KernelRequest& r)
      : NormLayout(*r.attributes, r.inputs[0].shape), rms(r.attributes->find("rms") && r.attributes->flag("rms")), rows(examples * places),
        block(std::clamp<std::int64_t>(up(rows, 512), 16, 4096)), blocks(std::max<std::int64_t>(1, up(rows, block))) {}
  bool rms;
  std::int64_t rows, block, blocks;
  std::int64_t scratch_bytes() const { return 2 * blocks * channels() * 8; }
};

/// Halves are computed in f32, which moments and parameters beside them are.
DType computed(DType type) { return is_half(type) ? f32 : type; }

/// A row that is a group lies in the registers of its warp or block, up to 128 bytes a thread, in packs of 16 bytes where it is whole ones, of a narrower `other` less.
struct Kept {
  Kept(const Norm& n, DType type, DType other) : pack(16 / static_cast<std::int64_t>(std::max(size_of(type), size_of(other)))) {
    if (n.width % pack != 0) pack = 1;
    const std::int64_t threads = n.width <= 1024 ? 32 : 256;
    packs = up(n.width, threads * pack);
    full = n.width % (threads * pack) == 0;
    whole = n.places == 1 && n.groups == 1 && packs > 0 && packs * pack * static_cast<std::int64_t>(size_of(computed(type))) <= 128;
  }
  std::int64_t pack, packs;
  bool full;   ///< every thread has as many
  bool whole;  ///< the row is kept
};

/// What both directions begin with. T is x's type, U that of y or dy.
Grid begin(Generated& g, const KernelRequest& r, const Norm& n, const Kept& kept, DType other, std::size_t gamma) {
  auto parameter = [&](const char* name, std::size_t i) {
    const bool given = i < r.inputs.size() && r.inputs[i].elements() == n.channels() && n.channels() > 0;
    g.head(std::string("#define ") + name + (given ? " ((const Real*)a.in[" + std::to_string(i) + "])" : " ((const Real*)0)"));
  };
  g.type("T", r.inputs[0].dtype).type("U", other).type("Real", computed(r.inputs[0].dtype));
  const Grid grid = g.lines(n.examples * n.groups, n.places * n.width, 1);
  g.number("places", n.places).number("groups", n.groups).number("width", n.width).number("channels", n.channels()).real("epsilon", r.attributes->real("epsilon"));
  g.head(n.rms ? "#define RMS 1" : "#define RMS 0").head("#define PACK " + std::to_string(kept.pack) + "\n#define PACKS " + std::to_string(kept.whole ? kept.packs : 1));
  g.head(n.places == 1 && n.groups == 1 ? "#define ROWS 1" : "#define ROWS 0").head(kept.full ? "#define FULL 1" : "#define FULL 0").head(kStaged);
  parameter("GAMMA", gamma);
  parameter("BETA", gamma == 1 ? 2 : r.inputs.size());
  g.body(R"(
typedef Pack<Real, PACK> P;
inline int first_of(int p) { return (p * WIDTH + (int)threadIdx.x % WIDTH) * PACK; }
/// Only the last pack may not be there; what is read in its place is not used, so that all loads go out together.
inline bool there(int p, const Args& a) { return FULL || p + 1 < PACKS || first_of(p) < (int)a.n; }
inline int from(int p, const Args& a) { return there(p, a) ? first_of(p) : 0; }
/// Element by element where packs are not aligned.
template <class To, bool Wide, class From> To got(const From* x) {
  if (Wide) return *(const To*)x;
  To out;
#pragma unroll
  for (int e = 0; e < sizeof(To) / sizeof(From); ++e) out.e[e] = x[e];
  return out;
}
template <bool Wide, class From> P read(const From* x, int at) {
  const Pack<From, PACK> s = got<Pack<From, PACK>, Wide>(x + at);
  P out;
#pragma unroll
  for (int e = 0; e < PACK; ++e) out.e[e] = convert<Real>(s.e[e]);
  return out;
}
/// `otherwise` where none is given.
template <bool Wide> P parameter(const Real* x, int at, Real otherwise) {
  const int kOnce = PACK < 16 / sizeof(Real) ? PACK : 16 / sizeof(Real);
  P out;
#pragma unroll
  for (int e = 0; e < PACK; e += kOnce) {
    Pack<Real, kOnce> part;
    if (x) part = got<Pack<Real, kOnce>, Wide>(x + at + e);
#pragma unroll
    for (int j = 0; j < kOnce; ++j) out.e[e + j] = x ? part.e[j] : otherwise;
  }
  return out;
}
template <bool Wide, class To> void write(To* y, int at, P v) {
  Pack<To, PACK> s;
#pragma unroll
  for (int e = 0; e < PACK; ++e) s.e[e] = convert<To>(v.e[e]);
  if (Wide) *(Pack<To, PACK>*)(y + at) = s;
#pragma unroll
  for (int e = 0; e < PACK; ++e)
    if (!Wide) y[at + e] = s.e[e];
}
/// Element i of the group that is line `line`: where it lies, and its channel.
inline i64 place_of(i64 line, i64 i, const Args& a) { return ROWS ? line * a.n + i : (line / a.groups * a.places + i / a.width) * a.channels + line % a.groups * a.width + i % a.width; }
inline i64 channel_of(i64 line, i64 i, const Args& a) { return ROWS ? i : line % a.groups * a.width + i % a.width; }
inline Real at_channel(const Real* parameter, i64 k, Real otherwise) { return parameter ? parameter[k] : otherwise; }
)");
  return grid;
}

/// Those of these inputs that are given, and output 0: what is read and written in packs.
std::vector<std::size_t> in_packs(const KernelRequest& r, std::vector<std::size_t> inputs) {
  std::erase_if(inputs, [&](std::size_t i) { return i >= r.inputs.size() || r.inputs[i].elements() == 0; });
  inputs.push_back(r.inputs.size());
  return inputs;
}

const char* const kForwardRows = R"(
template <bool Wide> void rows(const Args& a) {
  EACH_LINE(line) {
    const T* row = (const T*)a.in[0] + line * a.n;
    P x[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) x[p] = read<Wide>(row, from(p, a));
    Real mean = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
      for (int e = 0; e < PACK; ++e) mean += there(p, a) ? x[p].e[e] : Real(0);
    mean = RMS ? Real(0) : across(mean, Add()) / (Real)a.n;
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
      for (int e = 0; e < PACK; ++e) {
        const Real d = x[p].e[e] - mean;
        squares += there(p, a) ? d * d : Real(0);
      }
    const Real inverse = Real(1) / sqrt(across(squares, Add()) / (Real)a.n + (Real)a.epsilon);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const P gamma = parameter<Wide>(GAMMA, from(p, a), 1), beta = parameter<Wide>(BETA, from(p, a), 0);
#pragma unroll
      for (int e = 0; e < PACK; ++e) x[p].e[e] = (x[p].e[e] - mean) * inverse * gamma.e[e] + beta.e[e];
      if (there(p, a)) write<Wide>((U*)a.out[0] + line * a.n, first_of(p), x[p]);
    }
    if (threadIdx.x % WIDTH == 0 && a.out[1]) ((Real*)a.out[1])[line] = mean;
    if (threadIdx.x % WIDTH == 0 && a.out[2]) ((Real*)a.out[2])[line] = inverse;
  }
}
)";

const char* const kForward = R"(
KERNEL_AHEAD void normalise(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0];
    Real mean = 0, squares = 0;
    if (!RMS) {
      EACH_OF(i, a.n) mean += convert<Real>(x[place_of(line, i, a)]);
      mean = across(mean, Add()) / (Real)a.n;
    }
    EACH_OF(i, a.n) {
      const Real d = convert<Real>(x[place_of(line, i, a)]) - mean;
      squares += d * d;
    }
    const Real inverse = Real(1) / sqrt(across(squares, Add()) / (Real)a.n + (Real)a.epsilon);
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a), k = channel_of(line, i, a);
      ((U*)a.out[0])[at] = convert<U>((convert<Real>(x[at]) - mean) * inverse * at_channel(GAMMA, k, 1) + at_channel(BETA, k, 0));
    }
    if (threadIdx.x % WIDTH == 0 && a.out[1]) ((Real*)a.out[1])[line] = mean;
    if (threadIdx.x % WIDTH == 0 && a.out[2]) ((Real*)a.out[2])[line] = inverse;
  }
}
)";

/// A launch of `text`, a template that reads in packs or does not.
void launch_rows(Generated& g, const char* text, const Kept& kept, Grid grid, std::vector<std::size_t> in_packs) {
  g.body(text).entries("KERNEL_AHEAD void narrow(const Args a) { rows<false>(a); }\n");
  if (kept.pack == 1) g.launch("narrow", grid);
  else g.entries("KERNEL_AHEAD void wide(const Args a) { rows<true>(a); }\n").launch("wide", grid, std::move(in_packs), "narrow", grid);
}

Generated forward(const KernelRequest& r) {
  Norm n(r);
  const DType y = r.outputs[0].dtype;
  const Kept kept(n, r.inputs[0].dtype, y);
  Generated g(r);
  const Grid grid = begin(g, r, n, kept, y, 1);
  if (!kept.whole) return g.body(kForward).launch("normalise", grid);
  launch_rows(g, kForwardRows, kept, grid, in_packs(r, {0, 1, 2}));
  return g;
}

const char* const kColumns = R"(
/// A thread takes W channels of a block of rows, and reads the next rows ahead.
template <int W, int AHEAD> void columns(const Args& a) {
  typedef Pack<T, W> X;
  typedef Pack<U, W> D;
  const i64 across = a.channels / W;
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.blocks * across; u += (i64)gridDim.x * blockDim.x) {
    const i64 k = u % across, b = u / across, own = ROWS ? 0 : k * W / a.width, past = (b + 1) * a.block < a.rows ? (b + 1) * a.block : a.rows;
    Pack<double, W> dgamma = {}, dbeta = {};
    for (i64 row = b * a.block; row < past; row += AHEAD) {
      const i64 example = ROWS ? row : row / a.places;
      const u32 place = ROWS ? 0 : (u32)(row % a.places);
      X x[AHEAD];
      D d[AHEAD];
      Real mean[AHEAD], inverse[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        const int more = row + j < past ? j : 0;
        const i64 at = row + more, group = ROWS ? at : (example + (place + more) / (u32)a.places) * a.groups + own;
        x[j] = ((const X*)a.in[0])[at * across + k];
        d[j] = ((const D*)a.in[3])[at * across + k];
        mean[j] = ((const Real*)a.in[1])[group];
        inverse[j] = ((const Real*)a.in[2])[group];
      }
#pragma unroll
      for (int j = 0; j < AHEAD; ++j)
#pragma unroll
        for (int e = 0; e < W; ++e)
          if (row + j < past) {
            const double dy = (double)convert<Real>(d[j].e[e]);
            dgamma.e[e] += dy * (((double)convert<Real>(x[j].e[e]) - (double)mean[j]) * (double)inverse[j]);
            dbeta.e[e] += dy;
          }
    }
    ((Pack<double, W>*)a.scratch)[u] = dgamma;
    ((Pack<double, W>*)a.scratch)[a.blocks * across + u] = dbeta;
  }
}
/// Eight warps add every eighth block of 32 sums, then the first adds what the eight have.
KERNEL_AHEAD void join(const Args a) {
  __shared__ double parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (i64 first = (i64)blockIdx.x * 32; first < 2 * a.channels; first += (i64)gridDim.x * 32) {
    const i64 u = first + lane, which = u / a.channels, k = u % a.channels;
    const bool wanted = which < 2 && a.out[1 + which];
    double sum = 0;
    if (wanted && part < a.blocks) sum = in_order<16>(sum, (const double*)a.scratch + (which * a.blocks + part) * a.channels + k, 8 * a.channels, (a.blocks - part + 7) / 8, Add());
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && wanted) {
      for (int j = 1; j < 8; ++j) sum += parts[j][lane];
      ((Real*)a.out[1 + which])[k] = (Real)sum;
    }
    __syncthreads();
  }
}
)";

const char* const kGradientRows = R"(
template <bool Wide> void rows(const Args& a) {
  EACH_LINE(line) {
    const Real mean = ((const Real*)a.in[1])[line], inverse = ((const Real*)a.in[2])[line];
    P g[PACKS], normal[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      normal[p] = read<Wide>((const T*)a.in[0] + line * a.n, from(p, a));
      g[p] = read<Wide>((const U*)a.in[3] + line * a.n, from(p, a));
    }
    Real sum = 0, product = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const P gamma = parameter<Wide>(GAMMA, from(p, a), 1);
#pragma unroll
      for (int e = 0; e < PACK; ++e) {
        g[p].e[e] *= gamma.e[e];
        normal[p].e[e] = (normal[p].e[e] - mean) * inverse;
        sum += there(p, a) ? g[p].e[e] : Real(0);
        product += there(p, a) ? g[p].e[e] * normal[p].e[e] : Real(0);
      }
    }
    sum = RMS ? Real(0) : across(sum, Add()) / (Real)a.n;
    product = across(product, Add()) / (Real)a.n;
#pragma unroll
    for (int first = 0; first < PACKS; first += AHEAD) {
      Others<Wide, PACK> others[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j)
        if (first + j < PACKS && there(first + j, a)) others[j].read(a, line * a.n + first_of(first + j));
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        const int p = first + j;
        if (p >= PACKS || !there(p, a)) continue;
#pragma unroll
        for (int e = 0; e < PACK; ++e) g[p].e[e] = others[j].with(a, inverse * (g[p].e[e] - sum - normal[p].e[e] * product), e);
        write<Wide>((T*)a.out[0] + line * a.n, first_of(p), g[p]);
      }
    }
  }
}
)";

const char* const kGradient = R"(
KERNEL_AHEAD void norm_gradient(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0];
    const U* dy = (const U*)a.in[3];
    const Real mean = ((const Real*)a.in[1])[line], inverse = ((const Real*)a.in[2])[line];
    Real sum = 0, product = 0;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      const Real g = convert<Real>(dy[at]) * at_channel(GAMMA, channel_of(line, i, a), 1);
      sum += g;
      product += g * ((convert<Real>(x[at]) - mean) * inverse);
    }
    sum = RMS ? Real(0) : across(sum, Add()) / (Real)a.n;
    product = across(product, Add()) / (Real)a.n;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      const Real dx = inverse * (convert<Real>(dy[at]) * at_channel(GAMMA, channel_of(line, i, a), 1) - sum - (convert<Real>(x[at]) - mean) * inverse * product);
      Others<false, 1> others;
      others.read(a, at);
      ((T*)a.out[0])[at] = convert<T>(others.with(a, dx, 0));
    }
  }
}
)";

/// What the tree behind dx reads, N elements of each, and what becomes of dx.
std::string others_text(const GroupedNorm& n) {
  std::string data, reads, elements;
  for (std::size_t k = 0; k < n.others.size(); ++k) {
    data += fmt::format("  Pack<T, N> e{};\n", k);
    reads += fmt::format(" e{} = got<Pack<T, N>, Wide>((const T*)a.in[{}] + at);", k, n.others[k]);
    elements += fmt::format("e{}.e[e], ", k);
  }
  const std::string made = n.core ? fmt::format("convert<Real>(apply(convert<T>(dx), {}a))", elements) : "dx";
  return fmt::format("template <bool Wide, int N> struct Others {{\n{}  void read(const Args& a, i64 at) {{{} }}\n  Real with(const Args& a, Real dx, int e) const {{ return {}; }}\n}};\n", data, reads, made);
}

/// dx may lie on dy: the sums over examples read dy before. What a tree makes of it may lie on what that reads too.
Generated gradient(const KernelRequest& request) {
  const GroupedNorm whole(request, false);
  const KernelRequest& r = whole.own;
  Norm n(r);
  const DType dy = r.inputs[3].dtype;
  const Kept kept(n, r.inputs[0].dtype, dy);
  Generated g(request);
  const Grid grid = begin(g, r, n, kept, dy, 4);
  if (whole.core) g.body(element_text(tree_of_members(request, whole.core), g));
  const std::int64_t of_pack = static_cast<std::int64_t>(whole.others.size()) * kept.pack * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
  g.head(fmt::format("constexpr int AHEAD = {};  // 64 bytes of what the tree reads lie in registers", of_pack ? std::max<std::int64_t>(1, 64 / of_pack) : std::max<std::int64_t>(1, kept.packs)));
  g.body(others_text(whole));
  g.number("rows", n.rows).number("block", n.block).number("blocks", n.blocks);
  bool sums = (r.wanted.size() > 1 && r.wanted[1]) || (r.wanted.size() > 2 && r.wanted[2]);
  if (sums) {
    const std::int64_t items = n.blocks * n.channels();
    g.body(kColumns).entries("KERNEL_AHEAD void columns_narrow(const Args a) { columns<1, 8>(a); }\n");
    if (kept.pack == 1) g.launch("columns_narrow", grid_for(items, 128));
    else g.entries("KERNEL_AHEAD void columns_wide(const Args a) { columns<PACK < 4 ? PACK : 4, PACK < 8 ? 4 : 8>(a); }\n").launch("columns_wide", grid_for(items / std::min<std::int64_t>(kept.pack, 4), 128), {0, 3}, "columns_narrow", grid_for(items, 128));
    g.launch("join", grid_for(2 * n.channels() * 8));
  }
  std::vector<std::size_t> packs = whole.others;
  packs.insert(packs.end(), {0, 3, 4});
  if (kept.whole) launch_rows(g, kGradientRows, kept, grid, in_packs(request, std::move(packs)));
  else g.body(kGradient).launch("norm_gradient", grid);
  return g;
}

Support takes(const KernelRequest& r, bool backward) {
  Support s = takes_on_gpu(r, {f32, f64, f16, bf16});
  if (!s.ok || !backward) return s;
  if (r.outputs[0].dtype != r.inputs[0].dtype) return refuse("it gives dx in the type of x");
  s.scratch_bytes = Norm(r).scratch_bytes();
  return s;
}

Kernel kernel(const GpuCodeRef& code, const char* op, bool backward) {
  return {.name = "nvrtc_norm", .op = op,
          .supports = [=](const KernelRequest& r) { return takes(r, backward); },
          .prepare = [=](const KernelRequest& r) { return (backward ? gradient(r) : forward(r)).prepare(*code); },
          .halves = true};
}

}  // namespace

std::vector<Kernel> layer_norm_cuda(const GpuCodeRef& code) {
  return {kernel(code, "layer_norm", false), kernel(code, "group_norm", false), kernel(code, "layer_norm_gradient", true), kernel(code, "group_norm_gradient", true)};
}

Kernel norm_gradient_with_elementwise(const GpuCodeRef& code, const std::shared_ptr<const KernelTable>& table) {
  return {.name = "nvrtc_norm", .op = kWithElementwise,
          .supports = [=](const KernelRequest& r) {
            const bool in_groups = !r.members.empty() && r.members.front()->op->name == "group_norm_gradient";
            const Support s = takes_group_of(in_groups ? "group_norm_gradient" : "layer_norm_gradient", false, r, *table);
            return s.ok ? takes(GroupedNorm(r, false).own, true) : s;
          },
          .prepare = [=](const KernelRequest& r) { return gradient(r).prepare(*code); },
          .halves = true};
}

}  // namespace belfry
