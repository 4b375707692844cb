#include <belfry/ops/gpu_kernel_names.h>

#include <algorithm>
#include <array>

#include <belfry/graph/structural.h>
#include <belfry/ops/fusions.h>

namespace belfry {

namespace {

/// A test holds them to the backend's table, in which each but those of trees and of members in turn stands a second time for halves, and those that multiply many by many once more for each leeway.
constexpr std::string_view kInF32 = "_in_f32", kMembersInTurn = "members_in_turn";
constexpr std::array<GpuKernelName, 50> kNames = {{
    {"cublas_lt_conv2d_bias", "conv2d_bias"},
    {"cublas_lt_conv2d_bias_add", "conv2d_bias_add"},
    {"cublas_lt_matmul", "matmul"},
    {"cublas_lt_matmul_add", "matmul_add"},
    {"cublas_lt_matmul_bias", "matmul_bias"},
    {"cublas_lt_matmul_bias_gelu_tanh", "matmul_bias_gelu_tanh"},
    {"cudnn_attention", "packed_attention packed_attention_gradient scaled_dot_product_attention scaled_dot_product_attention_gradient"},
    {"cudnn_avg_pool2d", "avg_pool2d avg_pool2d_gradient"},
    {"cudnn_batch_norm", "batch_norm batch_norm_gradient"},
    {"cudnn_conv2d", "conv2d conv2d_filter_gradient conv2d_input_gradient conv2d_transpose"},
    {"cudnn_max_pool2d", "max_pool2d"},
    {"members_in_turn", "conv2d_bias conv2d_bias_add conv2d_bias_relu elementwise matmul_add matmul_bias matmul_bias_gelu_tanh with_elementwise"},
    {"nvrtc_adam_rate", "adam_rate"},
    {"nvrtc_add_rows", "gather_gradient scatter_add"},
    {"nvrtc_argmax", "argmax argmin"},
    {"nvrtc_attention", "packed_attention packed_attention_gradient scaled_dot_product_attention scaled_dot_product_attention_gradient"},
    {"nvrtc_avg_pool2d", "avg_pool2d avg_pool2d_gradient"},
    {"nvrtc_batch_norm", "batch_norm batch_norm_gradient with_elementwise"},
    {"nvrtc_copy", "batch_statistic concat identity reshape"},
    {"nvrtc_count_above", "in_top_k"},
    {"nvrtc_cross_entropy", "softmax_cross_entropy sparse_softmax_cross_entropy"},
    {"nvrtc_cumsum", "cumsum"},
    {"nvrtc_depthwise_conv2d", "conv2d conv2d_filter_gradient conv2d_input_gradient with_elementwise"},
    {"nvrtc_divide", "div"},
    {"nvrtc_elementwise",
     "abs add add_n broadcast_like broadcast_to cast ceil clip clip_gradient cos div elementwise elu elu_gradient equal erf exp floor gelu gelu_gradient gelu_tanh greater "
     "greater_equal leaky_relu leaky_relu_gradient less less_equal log log1p logical_and logical_not logical_or maximum minimum mul neg not_equal pow "
     "reciprocal relu relu6 relu6_gradient relu_gradient round rsqrt sigmoid sigmoid_cross_entropy sign silu sin softplus sqrt square squared_difference sub "
     "tanh where with_elementwise"},
    {"nvrtc_few_channels", "conv2d conv2d_bias conv2d_filter_gradient"},
    {"nvrtc_gather", "gather"},
    {"nvrtc_give", "take_along_axis_gradient"},
    {"nvrtc_kept_value", "constant row_count row_weight"},
    {"nvrtc_local_response_norm", "local_response_norm local_response_norm_gradient"},
    {"nvrtc_logsumexp", "reduce_logsumexp"},
    {"nvrtc_max_pool2d", "max_pool2d max_pool2d_gradient"},
    {"nvrtc_norm", "group_norm group_norm_gradient layer_norm layer_norm_gradient with_elementwise"},
    {"nvrtc_one_hot", "one_hot"},
    {"nvrtc_pad", "pad pad_gradient"},
    {"nvrtc_philox", "dropout random_normal random_uniform"},
    {"nvrtc_reduce_all", "reduce_all"},
    {"nvrtc_reduce_any", "reduce_any"},
    {"nvrtc_reduce_max", "reduce_max"},
    {"nvrtc_reduce_mean", "reduce_mean"},
    {"nvrtc_reduce_min", "reduce_min"},
    {"nvrtc_reduce_prod", "reduce_prod"},
    {"nvrtc_reduce_sum", "reduce_sum"},
    {"nvrtc_resize", "resize resize_gradient"},
    {"nvrtc_slice", "slice slice_gradient"},
    {"nvrtc_softmax", "log_softmax softmax"},
    {"nvrtc_take", "take_along_axis"},
    {"nvrtc_top_k", "top_k"},
    {"nvrtc_transpose", "transpose"},
    {"nvrtc_update",
     "adadelta adagrad adam adamax amsgrad ftrl lamb lion momentum moving_average rmsprop rmsprop_centered rmsprop_centered_momentum rmsprop_momentum sgd"}}};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

/// Whether it ended so; then it does no more.
bool cut(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

}  // namespace

std::span<const GpuKernelName> gpu_kernel_names() { return kNames; }

bool is_gpu_kernel(std::string_view name, std::string_view op) {
  const std::string_view kernel = name.substr(0, name.find('@'));
  if (kernel != name && (!(kernel.starts_with("cudnn_") || kernel.starts_with("cublas_lt_")) || name.size() == kernel.size() + 1)) return false;
  std::string_view base = kernel;
  const bool widens = cut(base, kInF32), repeats_no_bits = cut(base, kNondeterministic), rounds = cut(base, "_tf32");
  const bool attends = base == "nvrtc_attention" || (base == "cudnn_attention" && (op == "packed_attention" || op == "scaled_dot_product_attention"));
  if ((rounds && base != "cudnn_conv2d" && base != "nvrtc_few_channels" && !attends && !base.starts_with("cublas_lt_")) || (repeats_no_bits && (base != "cudnn_conv2d" || op != "conv2d_filter_gradient"))) return false;
  return (!widens || (base != kMembersInTurn && op != kElementwise && op != kWithElementwise)) && std::any_of(kNames.begin(), kNames.end(), [&](const GpuKernelName& k) { return k.name == base && has_word(k.ops, op); });
}

}  // namespace belfry
