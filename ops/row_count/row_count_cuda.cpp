#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/cuda/generated_internal.h>

#include <cstring>

#include <fmt/format.h>

#include <belfry/graph/host_tensor.h>

namespace belfry {
namespace {

constexpr std::size_t kMostBytes = 2048;  // that travel with a launch

/// The bytes of one element, where all are alike.
bool alike(const HostTensor& t, std::size_t size) {
  for (std::size_t at = size; at < t.bytes().size(); at += size)
    if (std::memcmp(t.raw(), t.raw() + at, size) != 0) return false;
  return true;
}

/// A value that is known: one element over and over, or elements that travel as arguments.
Generated kept(std::size_t inputs, const HostTensor& value) {
  auto size = size_of(value.dtype());
  std::int64_t n = value.elements();
  std::size_t held = alike(value, size) ? std::min<std::size_t>(size, value.bytes().size()) : value.bytes().size();
  Generated g(inputs, 1);
  g.type("T", word_text(static_cast<std::int64_t>(size))).number("n", n).number("held", static_cast<std::int64_t>(held / size));
  for (std::size_t at = 0; at < std::max<std::size_t>(held, 1); at += 8) {
    std::int64_t word = 0;
    if (held) std::memcpy(&word, value.raw() + at, std::min<std::size_t>(8, held - at));
    g.number(fmt::format("v{}", at / 8), word);
  }
  g.body(R"(
KERNEL void kept(const Args a) {
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) ((T*)a.out[0])[i] = ((const T*)&a.v0)[a.held == 1 ? 0 : i];
}
)");
  return g.launch("kept", grid_for(n));
}

const TensorRef& value_of(const KernelRequest& r) { return std::get<TensorRef>(*r.attributes->find("value")); }

Kernel of_share(const GpuCodeRef& code, const char* op) {
  return {.name = "nvrtc_kept_value", .op = op, .supports = [](const KernelRequest&) { return Support{}; }, .prepare = [code](const KernelRequest& r) {
            // Of one element: all are alike, and a tensor of the whole shape would be made for nothing.
            HostTensor value(r.outputs[0].dtype, {1});
            View out{value.type(), value.raw()};
            r.def->reference(Call{*r.attributes, {}, {&out, 1}, r.output_types, r.share});
            HostTensor all(r.outputs[0].dtype, r.outputs[0].shape);
            for (std::size_t at = 0, size = size_of(value.dtype()); at < all.bytes().size(); at += size) std::memcpy(all.raw() + at, value.raw(), size);
            return kept(r.inputs.size(), all).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> row_count_cuda(const GpuCodeRef& code) {
  Kernel constant{.name = "nvrtc_kept_value", .op = "constant",
                  .supports = [](const KernelRequest& r) {
                    const HostTensor& v = *value_of(r);
                    bool small = v.bytes().size() <= kMostBytes || alike(v, size_of(v.dtype()));
                    return small ? Support{} : refuse(fmt::format("{} bytes do not travel with a launch", v.bytes().size()));
                  },
                  .prepare = [code](const KernelRequest& r) { return kept(r.inputs.size(), *value_of(r)).prepare(*code); }};
  return {constant, of_share(code, "row_count"), of_share(code, "row_weight")};
}

}  // namespace belfry
