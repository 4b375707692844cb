#include <belfry/ops/cuda_kernels.h>

#include <algorithm>
#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/layer_norm/formulas.h>

namespace belfry {
namespace {

/// Moments of a group are taken by a warp or a block, in the type of x; sums over examples in f64, in blocks of rows that depend on the shape alone.
struct Norm : NormLayout {
  explicit Norm(const KernelRequest& r)
      : NormLayout(*r.attributes, r.inputs[0].shape), rms(r.attributes->find("rms") && r.attributes->flag("rms")), rows(examples * places),
        block(std::clamp<std::int64_t>(up(rows, 512), 16, 4096)), blocks(std::max<std::int64_t>(1, up(rows, block))) {}
  bool rms;
  std::int64_t rows, block, blocks;
  std::int64_t scratch_bytes() const { return 2 * blocks * channels() * 8; }
};

Generated head_of(const KernelRequest& r, const Norm& n, Grid& grid, std::size_t gamma) {
  Generated g(r);
  auto given = [&](std::size_t i) { return i < r.inputs.size() && r.inputs[i].elements() == n.channels() && n.channels() > 0; };
  g.type("T", r.inputs[0].dtype);
  grid = g.lines(n.examples * n.groups, n.places * n.width, 1);
  g.number("places", n.places).number("groups", n.groups).number("width", n.width).number("channels", n.channels()).real("epsilon", r.attributes->real("epsilon"));
  g.head(n.rms ? "#define RMS 1" : "#define RMS 0");
  g.head(given(gamma) ? "#define GAMMA(k) ((const T*)a.in[" + std::to_string(gamma) + "])[k]" : "#define GAMMA(k) T(1)");
  g.head(gamma == 1 && given(2) ? "#define BETA(k) ((const T*)a.in[2])[k]" : "#define BETA(k) T(0)");
  return g.body(R"(
/// Element i of the group that is line `line`: where it lies, and its channel.
inline i64 place_of(i64 line, i64 i, const Args& a) { return a.places == 1 && a.groups == 1 ? line * a.n + i : (line / a.groups * a.places + i / a.width) * a.channels + line % a.groups * a.width + i % a.width; }
inline i64 channel_of(i64 line, i64 i, const Args& a) { return a.places == 1 && a.groups == 1 ? i : line % a.groups * a.width + i % a.width; }
)");
}

Generated forward(const KernelRequest& r) {
  Norm n(r);
  Grid grid;
  Generated g = head_of(r, n, grid, 1);
  g.body(R"(
KERNEL void normalise(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0];
    T mean = 0, squares = 0;
    if (!RMS) {
      EACH_OF(i, a.n) mean += x[place_of(line, i, a)];
      mean = across(mean, Add()) / (T)a.n;
    }
    EACH_OF(i, a.n) {
      const T d = x[place_of(line, i, a)] - mean;
      squares += d * d;
    }
    const T inverse = T(1) / sqrt(across(squares, Add()) / (T)a.n + (T)a.epsilon);
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a), k = channel_of(line, i, a);
      ((T*)a.out[0])[at] = (x[at] - mean) * inverse * GAMMA(k) + BETA(k);
    }
    if (threadIdx.x % WIDTH == 0 && a.out[1]) ((T*)a.out[1])[line] = mean;
    if (threadIdx.x % WIDTH == 0 && a.out[2]) ((T*)a.out[2])[line] = inverse;
  }
}
)");
  return g.launch("normalise", grid);
}

/// dx may lie on dy: the sums over examples read dy before.
Generated gradient(const KernelRequest& r) {
  Norm n(r);
  Grid grid;
  Generated g = head_of(r, n, grid, 4);
  g.number("rows", n.rows).number("block", n.block).number("blocks", n.blocks).body(R"(
KERNEL void columns(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.blocks * a.channels; u += (i64)gridDim.x * blockDim.x) {
    const i64 k = u % a.channels, b = u / a.channels, past = (b + 1) * a.block < a.rows ? (b + 1) * a.block : a.rows;
    double dgamma = 0, dbeta = 0;
    for (i64 row = b * a.block; row < past; ++row) {
      const i64 at = row * a.channels + k, group = row / a.places * a.groups + k / a.width;
      const double d = (double)((const T*)a.in[3])[at];
      dgamma += d * (((double)((const T*)a.in[0])[at] - (double)((const T*)a.in[1])[group]) * (double)((const T*)a.in[2])[group]);
      dbeta += d;
    }
    ((double*)a.scratch)[u] = dgamma;
    ((double*)a.scratch)[a.blocks * a.channels + u] = dbeta;
  }
}
/// Eight warps add every eighth block of 32 sums, then the first adds what the eight have.
KERNEL void join(const Args a) {
  __shared__ double parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (i64 first = (i64)blockIdx.x * 32; first < 2 * a.channels; first += (i64)gridDim.x * 32) {
    const i64 u = first + lane, which = u / a.channels, k = u % a.channels;
    const bool wanted = which < 2 && a.out[1 + which];
    double sum = 0;
    if (wanted) {
#pragma unroll 8
      for (i64 b = part; b < a.blocks; b += 8) sum += ((const double*)a.scratch)[(which * a.blocks + b) * a.channels + k];
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && wanted) {
      for (int j = 1; j < 8; ++j) sum += parts[j][lane];
      ((T*)a.out[1 + which])[k] = (T)sum;
    }
    __syncthreads();
  }
}
KERNEL void norm_gradient(const Args a) {
  EACH_LINE(line) {
    const T* x = (const T*)a.in[0];
    const T* dy = (const T*)a.in[3];
    const T mean = ((const T*)a.in[1])[line], inverse = ((const T*)a.in[2])[line];
    T sum = 0, product = 0;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      const T g = dy[at] * GAMMA(channel_of(line, i, a));
      sum += g;
      product += g * ((x[at] - mean) * inverse);
    }
    sum = RMS ? T(0) : across(sum, Add()) / (T)a.n;
    product = across(product, Add()) / (T)a.n;
    EACH_OF(i, a.n) {
      const i64 at = place_of(line, i, a);
      ((T*)a.out[0])[at] = inverse * (dy[at] * GAMMA(channel_of(line, i, a)) - sum - (x[at] - mean) * inverse * product);
    }
  }
}
)");
  bool sums = (r.wanted.size() > 1 && r.wanted[1]) || (r.wanted.size() > 2 && r.wanted[2]);
  if (sums) g.launch("columns", grid_for(n.blocks * n.channels(), 128)).launch("join", grid_for(2 * n.channels() * 8));
  return g.launch("norm_gradient", grid);
}

Kernel kernel(const GpuCodeRef& code, const char* op, bool backward) {
  return {.name = "nvrtc_norm", .op = op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes_on_gpu(r, {f32, f64});
            if (s.ok && backward) s.scratch_bytes = Norm(r).scratch_bytes();
            return s;
          },
          .prepare = [=](const KernelRequest& r) { return (backward ? gradient(r) : forward(r)).prepare(*code); }};
}

}  // namespace

std::vector<Kernel> layer_norm_cuda(const GpuCodeRef& code) {
  return {kernel(code, "layer_norm", false), kernel(code, "group_norm", false), kernel(code, "layer_norm_gradient", true), kernel(code, "group_norm_gradient", true)};
}

}  // namespace belfry
