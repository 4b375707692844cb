// The kernels of NVIDIA's GPUs, room by room: one explicit list.
#pragma once

#include <memory>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

class CudaToolkit;

/// All of them, per op best first. Choosing needs neither driver nor GPU; kernels are prepared on a thread whose CUDA context is
/// current, and launch on `Arguments::stream`.
KernelTable cuda_kernels(const std::shared_ptr<CudaToolkit>& toolkit);

// Each room's own, in its *_cuda.cpp.
std::vector<Kernel> avg_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> batch_norm_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> conv2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> matmul_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit);

}  // namespace belfry
