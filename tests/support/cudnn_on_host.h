// What a sequence of cuDNN's graphs, of products and of transpositions says, computed on the host element by element, by the strides that it gives.
#pragma once

#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/graph/host_tensor.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>

namespace belfry::test {

/// Products are read as cuBLAS would read their layouts. f32.
void run_on_host(const cudnn::Sequence& sequence, const Arguments& arguments);

/// By the op's reference.
std::vector<HostTensor> by_reference(const KernelRequest& request, const std::vector<HostTensor>& inputs);

/// y = first·second, column by column, added to what y holds with `accumulate`; an epilogue's bias goes along the rows of what cuBLAS makes.
void multiply_on_host(const cublas_lt::Product& product, const float* a, const float* b, float* y, const float* bias = nullptr);

}  // namespace belfry::test
