#include <belfry/ops/cuda_kernels.h>

#include <algorithm>

#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {
namespace {

/// In the order of the CPU's kernel, in the type of x; powers by roots where they are.
const char* const kNorm = R"(
inline T inverse_power(T s, const Args& a) {
#if POWER == 2
  return T(1) / sqrt(s);
#elif POWER == 3
  const T root = sqrt(s);
  return T(1) / (root * sqrt(root));
#elif POWER == 4
  return T(1) / s;
#else
  return pow(s, -(T)a.beta);
#endif
}
/// Neighbours of channel c, from the first to the one past the last.
#define EACH_NEIGHBOUR(k, c) for (i64 k = c > a.radius ? c - a.radius : 0; k < a.channels && k - c <= a.radius; ++k)
inline T base_of(const T* pixel, i64 c, const Args& a) {
  T squares = 0;
  EACH_NEIGHBOUR(k, c) squares += pixel[k] * pixel[k];
  return (T)a.bias + (T)a.alpha * squares;
}
#define EACH_ELEMENT(u) for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.elements; u += (i64)gridDim.x * blockDim.x)
KERNEL void normalise(const Args a) {
  EACH_ELEMENT(u) {
    const T* x = (const T*)a.in[0];
    const i64 c = u % a.channels;
    ((T*)a.out[0])[u] = inverse_power(base_of(x + u - c, c, a), a) * x[u];
  }
}
)";
const char* const kGradient = R"(
/// What each channel takes from its neighbours, and the gradient without it.
KERNEL void parts(const Args a) {
  const T factor = T(2) * (T)a.alpha * (T)a.beta;
  EACH_ELEMENT(u) {
    const T* x = (const T*)a.in[0];
    const i64 c = u % a.channels;
    const T s = base_of(x + u - c, c, a), mine = ((const T*)a.in[1])[u] * inverse_power(s, a);
    ((T*)a.scratch)[u] = factor * mine * x[u] / s;
    ((T*)a.out[0])[u] = mine;
  }
}
KERNEL void take(const Args a) {
  EACH_ELEMENT(u) {
    const T x = ((const T*)a.in[0])[u];
    const i64 c = u % a.channels;
    const T* t = (const T*)a.scratch + u - c;
    T dx = ((const T*)a.out[0])[u];
    EACH_NEIGHBOUR(k, c) dx -= x * t[k];
    ((T*)a.out[0])[u] = dx;
  }
}
)";

Generated norm(const KernelRequest& r) {
  const double beta = r.attributes->real("beta");
  const std::int64_t channels = r.inputs[0].shape.back(), n = r.inputs[0].elements();
  Generated g(r);
  g.type("T", r.inputs[0].dtype).head("#define POWER " + std::to_string(beta == 0.5 ? 2 : beta == 0.75 ? 3 : beta == 1 ? 4 : 0));
  g.number("elements", n).number("channels", channels).number("radius", std::min(r.attributes->integer("depth_radius"), channels));
  for (const char* name : {"bias", "alpha", "beta"}) g.real(name, r.attributes->real(name));
  return g.body(kNorm);
}

Kernel kernel(const GpuCodeRef& code, const char* op, bool backward) {
  return {.name = "nvrtc_local_response_norm", .op = op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes_on_gpu(r, {f32, f64});
            if (s.ok && backward) s.scratch_bytes = r.inputs[0].elements() * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            return s;
          },
          .prepare = [=](const KernelRequest& r) {
            Generated g = norm(r);
            const Grid grid = grid_for(r.inputs[0].elements());
            if (!backward) return g.launch("normalise", grid).prepare(*code);
            return g.body(kGradient).launch("parts", grid).launch("take", grid).prepare(*code);
          }};
}

}  // namespace

/// cuDNN's takes NCHW alone and an odd window of up to 16, alpha divided by it.
std::vector<Kernel> local_response_norm_cuda(const GpuCodeRef& code) { return {kernel(code, "local_response_norm", false), kernel(code, "local_response_norm_gradient", true)}; }

}  // namespace belfry
