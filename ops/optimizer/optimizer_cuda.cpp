#include <belfry/ops/cuda_kernels.h>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {
namespace {

const char* const kMove = "s[0] = s[0] + (g - s[0]) * one_less_beta1; s[1] = s[1] + (g * g - s[1]) * one_less_beta2; ";
const char* const kSquares = "s[0] = rho * s[0] + one_less_rho * (g * g); T spread = s[0]; ";
const char* const kCentre = "s[1] = rho * s[1] + one_less_rho * g; spread = s[0] - s[1] * s[1]; spread = spread < 0 ? T(0) : spread; ";
const char* const kStep = "T step = by[0] * g / root(spread); ";

/// One element: w and the slots s[] are changed, by the gradient g and the scalars by[]. Attributes have their names; one_less_X is 1 − X, rounded once.
std::string text_of(const std::string& op) {
  const std::string move = kMove, squares = kSquares, centre = kCentre, step = kStep;
  if (op == "sgd") return "w = w - by[0] * g;";
  if (op == "momentum") return "s[0] = momentum * s[0] + g; w = w - by[0] * (nesterov ? g + momentum * s[0] : s[0]);";
  if (op == "adam") return move + "w = w - by[0] * s[0] / (sqrt(s[1]) + epsilon);";
  if (op == "amsgrad") return move + "s[2] = s[2] > s[1] ? s[2] : s[1]; w = w - by[0] * s[0] / (sqrt(s[2]) + epsilon);";
  if (op == "adamax") return "T size = abs(g), kept = beta2 * s[1]; s[0] = s[0] + (g - s[0]) * one_less_beta1; s[1] = kept > size ? kept : size; w = w - by[0] * s[0] / (s[1] + epsilon);";
  if (op == "rmsprop") return squares + step + "w = w - step;";
  if (op == "rmsprop_momentum") return squares + step + "s[1] = momentum * s[1] + step; w = w - s[1];";
  if (op == "rmsprop_centered") return squares + centre + step + "w = w - step;";
  if (op == "rmsprop_centered_momentum") return squares + centre + step + "s[2] = momentum * s[2] + step; w = w - s[2];";
  if (op == "adagrad") return "s[0] = s[0] + g * g; w = w - by[0] * g / root(s[0]);";
  if (op == "adadelta")
    return "s[0] = rho * s[0] + one_less_rho * (g * g); T step = sqrt(s[1] + epsilon) * g / sqrt(s[0] + epsilon); s[1] = rho * s[1] + one_less_rho * (step * step); w = w - by[0] * step;";
  if (op == "ftrl")
    return "T sum = s[0] + g * g, grown = sqrt(sum), pull = g + twice_shrinkage * w; s[1] = s[1] + pull - (grown - sqrt(s[0])) / by[0] * w; s[0] = sum; "
           "T inner = s[1] < -l1 ? -l1 : s[1] > l1 ? l1 : s[1]; w = (inner - s[1]) / ((grown + beta) / by[0] + twice_l2);";
  if (op == "lion")
    return "T mixed = s[0] * beta1 + g * one_less_beta1, sign = mixed > 0 ? T(1) : mixed < 0 ? T(-1) : mixed; s[0] = s[0] * beta2 + g * one_less_beta2; w = w - by[0] * sign;";
  if (op == "lamb") return move + "w = by[0] * s[0] / (sqrt(s[1]) + epsilon * by[1]) + weight_decay * w;";
  return "w = w - by[0] * (w - g);";  // moving_average
}

const char* const kBody = R"(
/// N elements at a time, in one pass over w, slots and gradient. What lies at an element is read before it is written.
template <int N> void pass(const Args& a, i64 first, i64 past, u32 block, u32 blocks) {
  T by[SCALARS];
#pragma unroll
  for (int k = 0; k < SCALARS; ++k) by[k] = *(const T*)a.in[SLOTS + 2 + k];
  const T decay = DECAYS ? *(const T*)a.in[INPUTS - 1] : T(0);
#ifdef JOINT
#pragma unroll 1  // a small node has one turn; more of them would spill
#endif
  for (i64 u = first + (i64)block * blockDim.x + threadIdx.x; u < past; u += (i64)blocks * blockDim.x) {
    Pack<T, N> w = ((const Pack<T, N>*)a.in[0])[u], g = ((const Pack<T, N>*)a.in[SLOTS + 1])[u], s[SLOTS + 1];
#pragma unroll
    for (int k = 0; k < SLOTS; ++k) s[k] = ((const Pack<T, N>*)a.in[1 + k])[u];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      T mine[SLOTS + 1];
#pragma unroll
      for (int k = 0; k < SLOTS; ++k) mine[k] = s[k].e[j];
      w.e[j] = next(DECAYS ? w.e[j] - decay * w.e[j] : w.e[j], g.e[j], mine, by, a);
#pragma unroll
      for (int k = 0; k < SLOTS; ++k) s[k].e[j] = mine[k];
    }
#pragma unroll
    for (int k = 0; k < SLOTS; ++k) ((Pack<T, N>*)a.out[1 + k])[u] = s[k];
    ((Pack<T, N>*)a.out[0])[u] = w;
  }
}
inline void one_by_one(const Args& a, u32 block, u32 blocks) { pass<1>(a, 0, a.n, block, blocks); }
)";

const char* const kEntries = R"(
KERNEL void wide(const Args a) {
  pass<16 / sizeof(T)>(a, 0, a.n / (16 / sizeof(T)), blockIdx.x, gridDim.x);
  pass<1>(a, a.n / (16 / sizeof(T)) * (16 / sizeof(T)), a.n, blockIdx.x, gridDim.x);
}
KERNEL void narrow(const Args a) { one_by_one(a, blockIdx.x, gridDim.x); }
)";

Generated update(const KernelRequest& r, std::size_t slots, std::size_t scalars) {
  const Attributes& at = *r.attributes;
  std::size_t decay = slots + 2 + scalars;
  bool decays = r.inputs.size() > decay && r.inputs[decay].elements() == 1;
  Generated g(r);
  g.type("T", r.inputs[0].dtype).head(fmt::format("#define SLOTS {}\n#define SCALARS {}\n#define INPUTS {}\n#define DECAYS {}", slots, scalars, r.inputs.size(), decays ? 1 : 0));
  std::string text = "inline T next(T w, const T g, T* s, const T* by, const Args& a) {\n";
  for (const AttributeDef& a : r.def->attributes) {
    const AttributeValue& value = *at.find(a.name);
    if (const bool* flag = std::get_if<bool>(&value)) g.head(fmt::format("static const bool {} = {};", a.name == "epsilon_inside" ? "inside" : a.name, *flag));
    if (const double* real = std::get_if<double>(&value)) {
      g.real(a.name, *real).real("one_less_" + a.name, 1 - *real);
      text += fmt::format("  const T {0} = (T)a.{0}, one_less_{0} = (T)a.one_less_{0};\n", a.name);
    }
  }
  // As the CPU's formulas have it: √(x + epsilon) or √x + epsilon, always as a sum with both.
  if (at.find("epsilon_inside")) text += "  const T in = inside ? epsilon : T(0), out = inside ? T(0) : epsilon;\n#define root(x) (sqrt((x) + in) + out)\n";
  if (r.op == "ftrl") {
    g.real("double_l2", 2 * at.real("l2")).real("double_shrinkage", 2 * at.real("l2_shrinkage"));
    text += "  const T twice_l2 = (T)a.double_l2, twice_shrinkage = (T)a.double_shrinkage;\n";
  }
  std::int64_t n = r.inputs[0].elements(), width = 16 / static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
  g.number("n", n).body(text + "  " + text_of(r.op) + "\n  return w;\n}\n" + kBody).entries(kEntries).joint("one_by_one", grid_for(n).blocks);
  std::vector<std::size_t> aligned;
  for (std::size_t i = 0; i < slots + 2; ++i) aligned.push_back(i);
  for (std::size_t k = 0; k < slots + 1; ++k) aligned.push_back(r.inputs.size() + k);
  return g.launch("wide", grid_for(std::max(n / width, std::min(n, width))), aligned, "narrow", grid_for(n));
}

Kernel kernel(const GpuCodeRef& code, const char* op, std::size_t slots, std::size_t scalars = 1) {
  return {.name = "nvrtc_update", .op = op,
          .supports = [=](const KernelRequest& r) {
            if (r.op == "ftrl" && r.attributes->real("power") != -0.5) return refuse("the power is not -0.5");
            return takes_on_gpu(r, {f32, f64});
          },
          .prepare = [=](const KernelRequest& r) { return update(r, slots, scalars).prepare(*code); }};
}

/// One thread: the products of the reference, in f64.
const char* const kRate = R"(
inline double power(double base, i64 exponent) {
  double out = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2) out *= base;
  return out;
}
KERNEL void adam_rate(const Args a) {
  if (blockIdx.x || threadIdx.x) return;
  const T rate = *(const T*)a.in[0];
  const i64 step = *(const i64*)a.in[1] + 1;
#if EXACT
  *(T*)a.out[0] = (T)((double)rate * sqrt(1 - power(a.beta2, step)) / (1 - power(a.beta1, step)));
#else
  const T power1 = (T)power((double)(float)a.beta1, step), power2 = (T)power((double)(float)a.beta2, step);
  *(T*)a.out[0] = rate * sqrt(1 - power2) / (1 - power1);
#endif
}
)";

Kernel rate(const GpuCodeRef& code) {
  return {.name = "nvrtc_adam_rate", .op = "adam_rate", .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64}); }, .prepare = [code](const KernelRequest& r) {
            Generated g(r);
            g.type("T", r.inputs[0].dtype).head(r.attributes->text("powers") == "exact" ? "#define EXACT 1" : "#define EXACT 0");
            g.real("beta1", r.attributes->real("beta1")).real("beta2", r.attributes->real("beta2")).body(kRate);
            return g.launch("adam_rate", {1, 32}).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> optimizer_cuda(const GpuCodeRef& code) {
  return {kernel(code, "sgd", 0),      kernel(code, "momentum", 1),         kernel(code, "adam", 2),             kernel(code, "amsgrad", 3),
          kernel(code, "adamax", 2),   kernel(code, "rmsprop", 1),          kernel(code, "rmsprop_momentum", 2), kernel(code, "rmsprop_centered", 2),
          kernel(code, "rmsprop_centered_momentum", 3), kernel(code, "adagrad", 1), kernel(code, "adadelta", 2), kernel(code, "ftrl", 2),
          kernel(code, "lion", 1),     kernel(code, "lamb", 2, 2),          kernel(code, "moving_average", 0), rate(code)};
}

}  // namespace belfry
