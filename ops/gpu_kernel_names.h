// The names that kernels of GPUs have in plans: known where their library is not opened.
#pragma once

#include <span>
#include <string_view>

namespace belfry {

/// Whether there is such a kernel, for whatever op; an engine may stand behind the name of one of cuDNN: "cudnn_conv2d@eng34{k2=4}".
bool is_gpu_kernel(std::string_view name);

/// All, without those that compute halves in f32.
std::span<const std::string_view> gpu_kernel_names();

}  // namespace belfry
