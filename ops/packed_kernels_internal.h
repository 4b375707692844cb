// Kernels of scaled_dot_product_attention for q, k and v that lie in one value: they begin one behind the other there, and steps from place to place are three times as long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

/// The request as it would be of q, k and v apart, but for the layout, which says how they lie.
inline KernelRequest apart(const KernelRequest& r) {
  KernelRequest out = r;
  Extents shape = r.inputs[0].shape;
  shape.erase(shape.end() - 3);
  out.inputs.insert(out.inputs.begin(), 2, {});
  std::fill_n(out.inputs.begin(), 3, LocalType{r.inputs[0].dtype, shape});
  out.op = "scaled_dot_product_attention";
  if (r.op != "packed_attention") {
    out.op += "_gradient";
    out.outputs.insert(out.outputs.begin(), 2, {});
    std::fill_n(out.outputs.begin(), 3, LocalType{r.outputs[0].dtype, shape});
    if (!r.wanted.empty()) out.wanted.insert(out.wanted.begin(), 2, r.wanted[0]);
  }
  return out;
}

/// From the first of q, k and v to the next.
inline std::int64_t bytes_of_part(const LocalType& qkv) { return qkv.shape[qkv.shape.size() - 2] * qkv.shape.back() * static_cast<std::int64_t>(size_of(qkv.dtype)); }

/// What launches a kernel for q, k and v apart with the three parts of one value.
struct PackedPrepared : Prepared {
  PackedPrepared(std::unique_ptr<Prepared> of_three, const KernelRequest& r) : kernel(std::move(of_three)), backward(r.op != "packed_attention"), part(bytes_of_part(r.inputs[0])) {}
  void launch(const Arguments& a) override {
    three = a;
    three.inputs.insert(three.inputs.begin() + 1, {a.inputs[0] + part, a.inputs[0] + 2 * part});
    if (backward) three.outputs.insert(three.outputs.begin() + 1, {a.outputs[0] + part, a.outputs[0] + 2 * part});
    kernel->launch(three);
  }
  bool capturable() const override { return kernel->capturable(); }
  std::unique_ptr<Prepared> kernel;
  bool backward;
  std::int64_t part;
  Arguments three;
};

inline Kernel packed(Kernel k) {
  Kernel out = k;
  out.op = k.op == "scaled_dot_product_attention" ? "packed_attention" : "packed_attention_gradient";
  out.supports = [s = k.supports](const KernelRequest& r) { return s(apart(r)); };
  out.prepare = [p = k.prepare](const KernelRequest& r) -> std::unique_ptr<Prepared> { return std::make_unique<PackedPrepared>(p(apart(r)), r); };
  return out;
}

}  // namespace belfry
