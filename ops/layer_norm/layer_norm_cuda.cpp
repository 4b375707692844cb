#include <belfry/ops/cuda_kernels.h>

#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda/staged_internal.h>
#include <belfry/ops/layer_norm/lines_cuda_internal.h>

namespace belfry {

Grid begin_norm(Generated& g, const KernelRequest& r, const NormLines& n, const KeptLines& kept, DType other, std::size_t gamma) {
  auto parameter = [&](const char* name, std::size_t i) {
    const bool given = i < r.inputs.size() && r.inputs[i].elements() == n.channels() && n.channels() > 0;
    g.head(std::string("#define ") + name + (given ? " ((const Real*)a.in[" + std::to_string(i) + "])" : " ((const Real*)0)"));
  };
  g.type("T", r.inputs[0].dtype).type("U", other).type("Real", computed_in(r.inputs[0].dtype));
  const Grid grid = g.lines(n.examples * n.groups, n.places * n.width, 1, kept.of_warp);
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

void launch_rows(Generated& g, const KernelRequest& r, const char* text, const KeptLines& kept, Grid grid, std::vector<std::size_t> in_packs, const std::vector<std::size_t>& written) {
  std::erase_if(in_packs, [&](std::size_t i) { return i >= r.inputs.size() || r.inputs[i].elements() == 0; });
  for (std::size_t k : written) in_packs.push_back(r.inputs.size() + k);
  g.body(text).entries("KERNEL_AHEAD void narrow(const Args a) { rows<false>(a); }\n");
  if (kept.pack == 1) g.launch("narrow", grid);
  else g.entries("KERNEL_AHEAD void wide(const Args a) { rows<true>(a); }\n").launch("wide", grid, std::move(in_packs), "narrow", grid);
}

namespace {

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

Generated forward(const KernelRequest& r) {
  NormLines n(r);
  const DType y = r.outputs[0].dtype;
  const KeptLines kept(n, r.inputs[0].dtype, y);
  Generated g(r);
  const Grid grid = begin_norm(g, r, n, kept, y, 1);
  if (!kept.whole) return g.body(kForward).launch("normalise", grid);
  launch_rows(g, r, kForwardRows, kept, grid, {0, 1, 2});
  return g;
}

Kernel kernel(const GpuCodeRef& code, const char* op) {
  return {.name = "nvrtc_norm", .op = op,
          .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64, f16, bf16}); },
          .prepare = [=](const KernelRequest& r) { return forward(r).prepare(*code); },
          .halves = true};
}

}  // namespace

std::vector<Kernel> layer_norm_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out = norm_gradients_cuda(code);
  out.insert(out.begin(), {kernel(code, "layer_norm"), kernel(code, "group_norm")});
  return out;
}

}  // namespace belfry
