#include <cstring>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/loops.h>

namespace belfry {

std::vector<Kernel> concat_cpu() {
  return {{.name = "copy_blocks", .op = "concat", .supports = takes_any(), .prepare = [](const KernelRequest& r) {
             const Extents& shape = r.outputs[0].shape;
             int axis = from_front(r.attributes->integer("axis"), static_cast<int>(shape.size()));
             std::int64_t outer = product(shape, 0, static_cast<std::size_t>(axis));
             std::vector<std::int64_t> blocks;  // bytes of an input per outer index
             std::int64_t all = 0;
             for (const LocalType& x : r.inputs) all += blocks.emplace_back(outer > 0 ? x.bytes() / outer : 0);
             return prepared([=, threads = r.threads](const Arguments& a) {
               auto copy = [&](std::int64_t first, std::int64_t past) {
                 for (std::int64_t o = first; o < past; ++o) {
                   std::byte* to = a.outputs[0] + o * all;
                   for (std::size_t i = 0; i < blocks.size(); to += blocks[i++])
                     if (blocks[i] > 0) std::memcpy(to, a.inputs[i] + o * blocks[i], static_cast<std::size_t>(blocks[i]));
                 }
               };
               if (outer >= 2 * threads) return for_ranges(outer, outer * all / 4, threads, copy);
               for (std::int64_t o = 0; o < outer; ++o) {
                 std::byte* to = a.outputs[0] + o * all;
                 for (std::size_t i = 0; i < blocks.size(); to += blocks[i++]) {
                   const std::byte* from = a.inputs[i] + o * blocks[i];
                   for_ranges(blocks[i], blocks[i] / 4, threads, [&](std::int64_t begin, std::int64_t end) { std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin)); }, 64);
                 }
               }
             });
           }}};
}

}  // namespace belfry
