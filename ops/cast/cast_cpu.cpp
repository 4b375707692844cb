#include <bit>

#include <belfry/ops/cast/conversion_internal.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

template <class From, class To>
To convert(From x) {
  return converted<To>(x);
}

constexpr std::uint32_t kInfinity = 0x7F800000, kSign = 0x80000000;

template <>
float convert(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

template <>
BFloat16 convert(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  bool nan = (bits & ~kSign) > kInfinity;
  return BFloat16::of_bits(static_cast<std::uint16_t>(nan ? (bits >> 16 & 0x8000) | 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
}

template <>
float convert(Float16 x) {
  // The product brings the exponent to float's bias and makes subnormals normal; it is exact.
  std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7FFF) << 13;
  float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  std::uint32_t bits = (x.bits & 0x7C00) == 0x7C00 ? magnitude | kInfinity : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | static_cast<std::uint32_t>(x.bits & 0x8000) << 16);
}

template <>
Float16 convert(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  std::uint32_t magnitude = bits & ~kSign;
  // Below the least normal number the sum with 1/2 has the subnormal's last place as its own.
  std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  std::uint32_t normal = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  std::uint32_t out = magnitude < (113u << 23) ? subnormal : std::min<std::uint32_t>(normal, 0x7C00);
  if (magnitude >= (143u << 23)) out = magnitude > kInfinity ? 0x7E00 : 0x7C00;
  return Float16::of_bits(static_cast<std::uint16_t>(out | (bits >> 16 & 0x8000)));
}

template <class From, class To>
BELFRY_CLONES void run(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = convert<From, To>(x[i]);
}

template <class From, class To>
std::unique_ptr<Prepared> prepare(const KernelRequest& r) {
  return prepared([n = r.outputs[0].elements(), threads = r.threads](const Arguments& a) {
    for_ranges(n, n, threads, [&](std::int64_t begin, std::int64_t end) { run<From, To>(a.in<From>(0) + begin, a.out<To>(0) + begin, end - begin); }, 16);
  });
}

/// Halves are converted from and to f32 alone.
Support supports(const KernelRequest& r) {
  DType from = r.inputs[0].dtype, to = r.outputs[0].dtype;
  if ((is_half(from) && to != f32) || (is_half(to) && from != f32)) return refuse(fmt::format("{} to {}", name_of(from), name_of(to)));
  return accept();
}

}  // namespace

std::vector<Kernel> cast_cpu() {
  return {{.name = "simd_cast", .op = "cast", .supports = supports, .prepare = [](const KernelRequest& r) {
             DType from = r.inputs[0].dtype, to = r.outputs[0].dtype;
             if (from == f16) return prepare<Float16, float>(r);
             if (from == bf16) return prepare<BFloat16, float>(r);
             if (to == f16) return prepare<float, Float16>(r);
             if (to == bf16) return prepare<float, BFloat16>(r);
             return visit_dtype(from, [&]<class From>() { return visit_dtype(to, [&]<class To>() { return prepare<From, To>(r); }); });
           }}};
}

}  // namespace belfry
