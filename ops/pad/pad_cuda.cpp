#include <belfry/ops/cuda_kernels.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/pad/mirror.h>

namespace belfry {
namespace {

/// Neighbouring axes without padding are one.
struct Axis {
  std::int64_t inner = 1, outer = 1, before = 0;  ///< sizes without and with padding
  bool padded = false;
};

std::vector<Axis> axes_of(const Attributes& a, const Extents& x, const Extents& y) {
  std::vector<Axis> out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    bool padded = x[i] != y[i];
    if (out.empty() || padded || out.back().padded) out.push_back({1, 1, padded ? a.integers("before")[i] : 0, padded});
    out.back().inner *= x[i];
    out.back().outer *= y[i];
  }
  if (out.empty()) out.push_back({});
  return out;
}

/// Where element k of an axis stands: at its own place, and mirrored before and behind; in the order of the padded axis.
const char* const kPlaces = R"(
inline int places(i64 k, i64 size, i64 past, i64 before, i64* out) {
  int n = 0;
  const i64 left = before - k - REPEATED, right = before + 2 * (size - 1) + REPEATED - k;
  if (left >= 0 && left < before) out[n++] = left;
  out[n++] = before + k;
  if (right >= before + size && right < past) out[n++] = right;
  return n;
}
inline i64 source(i64 i, i64 size, i64 before) {
  const i64 k = i - before;
  if (k >= 0 && k < size) return k;
  return k < 0 ? -k - REPEATED : 2 * (size - 1) + REPEATED - k;
}
)";

Generated head_of(const KernelRequest& r, const std::vector<Axis>& axes) {
  PadMode mode = pad_mode(r.attributes->text("mode"));
  Generated g(r);
  g.type("T", r.outputs[0].dtype).number("n", r.outputs[0].elements());
  g.head(fmt::format("#define REPEATED {}", mode == PadMode::symmetric ? 1 : 0));
  for (std::size_t d = 0; d < axes.size(); ++d) g.number(fmt::format("x{}", d), axes[d].inner).number(fmt::format("y{}", d), axes[d].outer).number(fmt::format("b{}", d), axes[d].before);
  return g.body(kPlaces);
}

bool is_constant(const KernelRequest& r) { return pad_mode(r.attributes->text("mode")) == PadMode::constant; }

/// Without mirrors elements only move, from the padded side or to it: a thread takes 16 bytes along a last axis that is not padded.
Generated moved(const KernelRequest& r, bool pads) {
  const LocalType &x = pads ? r.inputs[0] : r.outputs[0], &y = pads ? r.outputs[0] : r.inputs[0];
  const std::vector<Axis> axes = axes_of(*r.attributes, x.shape, y.shape);
  const std::int64_t width = 16 / static_cast<std::int64_t>(size_of(x.dtype)), n = r.outputs[0].elements();
  const bool packs = !axes.back().padded && axes.back().inner % width == 0;
  Generated g(r);
  g.type("T", x.dtype).type("I", std::max(y.elements(), x.elements()) < (std::int64_t{1} << 30) ? "int" : "i64").number("n", n).real("value", pads ? r.attributes->real("value") : 0);
  g.head(is_half(x.dtype) ? "#define VALUE convert<T>((float)a.value)" : "#define VALUE (T)a.value");
  std::string walk;
  for (std::size_t d = axes.size(); d-- > 0;) {
    const char* per = d + 1 == axes.size() ? " / N" : "";
    g.number(fmt::format("x{}", d), axes[d].inner).number(fmt::format("y{}", d), axes[d].outer).number(fmt::format("b{}", d), axes[d].before);
    walk += fmt::format("    {{ const I own = (I)a.{0}{1}{2}, other = (I)a.{3}{1}{2}, k = left % own {4} (I)a.b{1}; left /= own; inside = inside && k >= 0 && k < other; from += k * step; step *= other; }}\n",
                        pads ? 'y' : 'x', d, per, pads ? 'x' : 'y', pads ? '-' : '+');
  }
  g.body("template <int N> void move(const Args& a) {\n  for (I u = (I)blockIdx.x * blockDim.x + threadIdx.x; u < (I)a.n / N; u += (I)gridDim.x * blockDim.x) {\n    I left = u, from = 0, step = 1;\n    bool inside = true;\n" + walk + R"(
    Pack<T, N> v;
    if (inside) v = ((const Pack<T, N>*)a.in[0])[from];
#pragma unroll
    for (int k = 0; k < N; ++k) v.e[k] = inside ? v.e[k] : VALUE;
    ((Pack<T, N>*)a.out[0])[u] = v;
  }
}
KERNEL void wide(const Args a) { move<16 / sizeof(T)>(a); }
KERNEL void narrow(const Args a) { move<1>(a); }
)");
  return packs ? g.launch("wide", grid_for(n / width), {0, r.inputs.size()}, "narrow", grid_for(n)) : g.launch("narrow", grid_for(n));
}

Generated forward(const KernelRequest& r) {
  if (is_constant(r)) return moved(r, true);
  std::vector<Axis> axes = axes_of(*r.attributes, r.inputs[0].shape, r.outputs[0].shape);
  Generated g = head_of(r, axes);
  std::string walk;
  for (std::size_t d = axes.size(); d-- > 0;)
    walk += fmt::format("    {{ const i64 k = {1}; left /= a.y{0}; from += k * step; step *= a.x{0}; }}\n", d, axes[d].padded ? fmt::format("source(left % a.y{0}, a.x{0}, a.b{0})", d) : fmt::format("left % a.y{}", d));
  g.body("KERNEL void pad(const Args a) {\n  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.n; u += (i64)gridDim.x * blockDim.x) {\n    i64 left = u, from = 0, step = 1;\n" + walk +
         "    ((T*)a.out[0])[u] = ((const T*)a.in[0])[from];\n  }\n}\n");
  return g.launch("pad", grid_for(r.outputs[0].elements()));
}

/// An element's copies are added in the order of the padded tensor.
Generated gradient(const KernelRequest& r) {
  if (is_constant(r)) return moved(r, false);
  std::vector<Axis> axes = axes_of(*r.attributes, r.outputs[0].shape, r.inputs[0].shape);
  Generated g = head_of(r, axes);
  std::string split, loops, at;
  for (std::size_t d = axes.size(); d-- > 0;)
    split += axes[d].padded ? fmt::format("    i64 p{0}[3]; const int n{0} = places(left % a.x{0}, a.x{0}, a.y{0}, a.b{0}, p{0}); left /= a.x{0};\n", d)
                            : fmt::format("    const i64 p{0}[1] = {{left % a.x{0}}}; const int n{0} = 1; left /= a.x{0};\n", d);
  for (std::size_t d = 0; d < axes.size(); ++d) {
    loops += fmt::format("    for (int i{0} = 0; i{0} < n{0}; ++i{0})\n", d);
    at = at.empty() ? fmt::format("p{0}[i{0}]", d) : fmt::format("({1}) * a.y{0} + p{0}[i{0}]", d, at);
  }
  g.body("KERNEL void unpad(const Args a) {\n  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.n; u += (i64)gridDim.x * blockDim.x) {\n    i64 left = u;\n    T sum = 0;\n" + split + loops +
         "      sum += ((const T*)a.in[0])[" + at + "];\n    ((T*)a.out[0])[u] = sum;\n  }\n}\n");
  return g.launch("unpad", grid_for(r.outputs[0].elements()));
}

}  // namespace

std::vector<Kernel> pad_cuda(const GpuCodeRef& code) {
  auto takes = [](const KernelRequest& r, std::vector<DType> dtypes) {
    if (is_half(r.inputs[0].dtype) && !is_constant(r)) return refuse("it mirrors no halves");
    return takes_on_gpu(r, dtypes);
  };
  return {{.name = "nvrtc_pad", .op = "pad", .supports = [takes](const KernelRequest& r) { return takes(r, {f32, f64, i32, i64, u8, boolean, f16, bf16}); },
           .prepare = [code](const KernelRequest& r) { return forward(r).prepare(*code); }, .halves = true},
          {.name = "nvrtc_pad", .op = "pad_gradient", .supports = [takes](const KernelRequest& r) { return takes(r, {f32, f64, f16, bf16}); },
           .prepare = [code](const KernelRequest& r) { return gradient(r).prepare(*code); }, .halves = true}};
}

}  // namespace belfry
