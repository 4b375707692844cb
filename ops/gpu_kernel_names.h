// The names that kernels of GPUs have in plans: known where their library is not opened.
#pragma once

#include <span>
#include <string_view>

namespace belfry {

/// One kernel, and the ops that it computes (of fused nodes their kinds), with blanks between them.
struct GpuKernelName {
  std::string_view name, ops;
};

/// Whether GPUs have a kernel of that name for the op; an engine may stand behind the name of one of cuDNN: "cudnn_conv2d@eng34{k2=4}".
bool is_gpu_kernel(std::string_view name, std::string_view op);

/// All, without those that compute halves in f32.
std::span<const GpuKernelName> gpu_kernel_names();

}  // namespace belfry
