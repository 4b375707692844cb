#include <belfry/ops/gpu_kernel_names.h>

#include <algorithm>
#include <array>

namespace belfry {

namespace {

/// A test holds them to the backend's table, in which each stands a second time for halves.
constexpr std::string_view kInF32 = "_in_f32";
constexpr std::array<std::string_view, 44> kNames = {
    "cublas_lt_matmul", "cublas_lt_matmul_bias", "cublas_lt_matmul_bias_gelu_tanh", "cublas_lt_matmul_bias_relu", "cudnn_avg_pool2d", "cudnn_batch_norm", "cudnn_conv2d",
    "cudnn_conv2d_bias_relu", "cudnn_max_pool2d", "members_in_turn", "nvrtc_adam_rate", "nvrtc_add_rows", "nvrtc_argmax", "nvrtc_attention", "nvrtc_copy",
    "nvrtc_count_above", "nvrtc_cross_entropy", "nvrtc_cumsum", "nvrtc_divide", "nvrtc_elementwise", "nvrtc_gather", "nvrtc_give", "nvrtc_kept_value",
    "nvrtc_local_response_norm", "nvrtc_logsumexp", "nvrtc_max_pool2d", "nvrtc_norm", "nvrtc_one_hot", "nvrtc_pad", "nvrtc_philox", "nvrtc_reduce_all",
    "nvrtc_reduce_any", "nvrtc_reduce_max", "nvrtc_reduce_mean", "nvrtc_reduce_min", "nvrtc_reduce_prod", "nvrtc_reduce_sum", "nvrtc_resize", "nvrtc_slice",
    "nvrtc_softmax", "nvrtc_take", "nvrtc_top_k", "nvrtc_transpose", "nvrtc_update"};

}  // namespace

std::span<const std::string_view> gpu_kernel_names() { return kNames; }

bool is_gpu_kernel(std::string_view name) {
  const std::string_view kernel = name.substr(0, name.find('@'));
  if (kernel != name && (!kernel.starts_with("cudnn_") || name.size() == kernel.size() + 1)) return false;
  const std::string_view base = kernel.ends_with(kInF32) ? kernel.substr(0, kernel.size() - kInF32.size()) : kernel;
  return std::find(kNames.begin(), kNames.end(), base) != kNames.end();
}

}  // namespace belfry
