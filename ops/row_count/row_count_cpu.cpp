#include <cstring>

#include <belfry/graph/host_tensor.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

/// What depends on shapes and the share alone is computed once, by the reference.
Kernel kept(const char* op) {
  return {.name = "kept_value", .op = op, .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            HostTensor value(r.outputs[0].dtype, r.outputs[0].shape);
            View out{value.type(), value.raw()};
            r.def->reference(Call{*r.attributes, {}, {&out, 1}, r.output_types, r.share});
            return prepared([value = std::move(value)](const Arguments& a) { std::memcpy(a.outputs[0], value.raw(), value.bytes().size()); });
          }};
}

/// A constant is copied from its attribute, which the graph holds anyway: however many towers, it is there once.
Kernel shared() {
  return {.name = "kept_value", .op = "constant", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            return prepared([value = std::get<TensorRef>(*r.attributes->find("value"))](const Arguments& a) {
              if (value->elements()) std::memcpy(a.outputs[0], value->raw(), value->bytes().size());
            });
          }};
}

}  // namespace

std::vector<Kernel> row_count_cpu() { return {shared(), kept("row_count"), kept("row_weight")}; }

}  // namespace belfry
