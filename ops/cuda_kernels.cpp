#include <belfry/ops/cuda_kernels.h>

namespace belfry {

KernelTable cuda_kernels(const std::shared_ptr<CudaToolkit>& toolkit) {
  KernelTable table;
  for (auto room : {
           avg_pool2d_cuda,
           batch_norm_cuda,
           conv2d_cuda,
           matmul_cuda,
           max_pool2d_cuda,
       })
    for (Kernel& k : room(toolkit)) table.add(std::move(k));
  return table;
}

}  // namespace belfry
