#include <belfry/ops/cuda_kernels.h>

#include <string>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {
namespace {

/// Philox4x32-10 by (index / 4, global row, step, stream): a thread draws the four words of a block and writes what stands in it.
const char* const kBody = R"(
inline float uniform_of(u32 word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }
inline double normal_of(const u32* words, int word) {
  const int pair = word & 2;
  const double radius = sqrt(-2 * log(1 - (double)uniform_of(words[pair]))), turn = 2 * 3.141592653589793238462643 * (double)uniform_of(words[pair + 1]);
  return radius * (word & 1 ? sin(turn) : cos(turn));
}
KERNEL void draw(const Args a) {
  const u64 seed = (u64)*(const i64*)a.in[SEED];
  const u32 step = (u32)*(const i64*)a.in[SEED + 1];
  const i64 length = a.factor * a.outer * a.inner, blocks = (length + 3) / 4;  // of a global row
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.rows * blocks; u += (i64)gridDim.x * blockDim.x) {
    const i64 row = u / blocks, block = u % blocks;
    u32 c[4] = {(u32)block, (u32)(a.first_row + row), step, (u32)a.stream}, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const u32 p_high = __umulhi(0xD2511F53u, c[0]), p_low = 0xD2511F53u * c[0], q_high = __umulhi(0xCD9E8D57u, c[2]), q_low = 0xCD9E8D57u * c[2];
      c[0] = q_high ^ c[1] ^ k0;
      c[1] = q_low;
      c[2] = p_high ^ c[3] ^ k1;
      c[3] = p_low;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const i64 index = block * 4 + word;
      if (index >= length) break;
      // The row axis moved to the front: (factor, outer, inner) in the counter, (outer, row, inner) in memory.
#if ROWS_FIRST
      const i64 at = row * length + index;
#else
      const i64 k = row * a.factor + index / (a.outer * a.inner), left = index % (a.outer * a.inner);
      const i64 at = (left / a.inner * a.along + k) * a.inner + left % a.inner;
#endif
      ((T*)a.out[0])[at] = DRAWN;
    }
  }
}
)";

Generated draw(const KernelRequest& r, std::size_t seed, const char* drawn) {
  const Extents& shape = r.outputs[0].shape;
  std::vector<int> axes = symbolic_axes(r.output_types[0].shape);
  std::int64_t factor = 1, along = 1, outer = 1, inner = elements(shape), rows = inner > 0;
  if (!axes.empty()) {
    auto axis = static_cast<std::size_t>(axes[0]);
    factor = r.output_types[0].shape[axis].factor;
    along = shape[axis];
    outer = product(shape, 0, axis);
    inner = product(shape, axis + 1, shape.size());
    rows = factor > 0 ? along / factor : 0;
  }
  Generated g(r);
  g.type("T", r.outputs[0].dtype).head("#define SEED " + std::to_string(seed) + "\n#define DRAWN " + drawn + "\n#define ROWS_FIRST " + (outer == 1 ? "1" : "0")).number("first_row", axes.empty() ? 0 : r.share.first_row);
  g.number("stream", r.attributes->integer("stream")).number("factor", factor).number("along", along).number("outer", outer).number("inner", inner).number("rows", rows).body(kBody);
  return g.launch("draw", grid_for(elements(shape) > 0 ? rows * up(factor * outer * inner, 4) : 0));
}

Kernel source(const GpuCodeRef& code, const char* op, const char* low, const char* high, const char* drawn) {
  return {.name = "nvrtc_philox", .op = op, .supports = [](const KernelRequest&) { return Support{}; }, .prepare = [=](const KernelRequest& r) {
            double a = r.attributes->real(low), b = r.attributes->real(high);
            return draw(r, 0, drawn).real("low", a).real("span", std::string(low) == "low" ? b - a : b).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> random_cuda(const GpuCodeRef& code) {
  Kernel dropout{.name = "nvrtc_philox", .op = "dropout", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64}); }, .prepare = [code](const KernelRequest& r) {
                   return draw(r, 1, "uniform_of(c[word]) >= (float)a.rate ? ((const T*)a.in[0])[at] * (T(1) / (T(1) - (T)a.rate)) : T(0)").real("rate", r.attributes->real("rate")).prepare(*code);
                 }};
  return {source(code, "random_uniform", "low", "high", "(T)(a.low + a.span * (double)uniform_of(c[word]))"), source(code, "random_normal", "mean", "deviation", "(T)(a.low + a.span * normal_of(c, word))"), dropout};
}

}  // namespace belfry
