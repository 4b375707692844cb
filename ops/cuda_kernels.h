// The kernels of NVIDIA's GPUs, room by room: one explicit list.
#pragma once

#include <memory>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

class CudaToolkit;
class GpuCode;

/// All of them, per op best first. Choosing needs neither driver nor GPU; kernels are prepared on a thread whose CUDA context is
/// current, and launch on `Arguments::stream`.
KernelTable cuda_kernels(const std::shared_ptr<CudaToolkit>& toolkit);
/// Those whose text is generated.
KernelTable generated_kernels(const std::shared_ptr<GpuCode>& code);

std::vector<Kernel> add_n_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> argmax_cuda(const std::shared_ptr<GpuCode>& code);
/// Of f32 that may be rounded.
std::vector<Kernel> attention_gradient_tf32_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> attention_tf32_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> avg_pool2d_generated_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> batch_norm_generated_cuda(const std::shared_ptr<GpuCode>& code);
/// Of groups: a norm and the elementwise nodes behind it, or before its gradient, for which `table` has expressions, and the sum of rows beside that.
Kernel batch_norm_with_elementwise(const std::shared_ptr<GpuCode>& code, const std::shared_ptr<const KernelTable>& table);
std::vector<Kernel> binary_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> broadcast_like_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> cast_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> compare_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> concat_cuda(const std::shared_ptr<GpuCode>& code);
/// One filter per channel.
std::vector<Kernel> conv2d_generated_cuda(const std::shared_ptr<GpuCode>& code);
/// Of groups: one filter per channel and the elementwise nodes behind it, for which `table` has expressions.
Kernel depthwise_with_elementwise(const std::shared_ptr<GpuCode>& code, const std::shared_ptr<const KernelTable>& table);
/// Pictures with few channels, in halves or f32 that may be rounded.
std::vector<Kernel> few_channels_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> cumsum_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> gather_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> identity_cuda(const std::shared_ptr<GpuCode>& code);
/// Of towers, which is the executor's to ask for.
std::vector<Kernel> join_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> layer_norm_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> local_response_norm_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> max_pool2d_generated_cuda(const std::shared_ptr<GpuCode>& code);
/// Of groups: the gradient of a layer or group norm and the elementwise nodes behind its dx, for which `table` has expressions.
Kernel norm_gradient_with_elementwise(const std::shared_ptr<GpuCode>& code, const std::shared_ptr<const KernelTable>& table);
std::vector<Kernel> one_hot_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> optimizer_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> packed_attention_generated_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> pad_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> random_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> reduce_cuda(const std::shared_ptr<GpuCode>& code);
/// Of groups: elementwise nodes, for which `table` has expressions, and the sum of the rows that they make.
Kernel elementwise_with_sum(const std::shared_ptr<GpuCode>& code, const std::shared_ptr<const KernelTable>& table);
std::vector<Kernel> resize_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> row_count_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> scaled_dot_product_attention_generated_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> scatter_add_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> slice_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> softmax_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> softmax_cross_entropy_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> take_along_axis_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> top_k_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> transpose_cuda(const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> unary_cuda(const std::shared_ptr<GpuCode>& code);

// Each room's own, in its *_cuda.cpp.
std::vector<Kernel> avg_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> batch_norm_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> conv2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit, const std::shared_ptr<GpuCode>& code);
std::vector<Kernel> matmul_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> packed_attention_cuda(const std::shared_ptr<CudaToolkit>& toolkit);
std::vector<Kernel> scaled_dot_product_attention_cuda(const std::shared_ptr<CudaToolkit>& toolkit);

}  // namespace belfry
