#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry {

namespace {

/// The bytes as they are; nothing where input and output share them.
Kernel copy_kernel(const char* op) {
  return {.name = "copy_bytes", .op = op, .supports = takes_any(), .prepare = [](const KernelRequest& r) {
            return prepared([bytes = r.outputs[0].bytes(), threads = r.threads](const Arguments& a) {
              if (a.outputs[0] == a.inputs[0]) return;
              for_ranges(bytes, bytes / 4, threads, [&](std::int64_t begin, std::int64_t end) { std::memcpy(a.outputs[0] + begin, a.inputs[0] + begin, static_cast<std::size_t>(end - begin)); }, 64);
            });
          }};
}

}  // namespace

std::vector<Kernel> identity_cpu() { return {copy_kernel("identity"), copy_kernel("reshape"), copy_kernel("batch_statistic")}; }

}  // namespace belfry
