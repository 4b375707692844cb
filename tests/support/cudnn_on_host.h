// What a sequence of cuDNN's graphs, of products and of transpositions says, computed on the host element by element, by the strides that it gives.
#pragma once

#include <string>
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

/// The kernels of cuDNN of all rooms, and what the one of the request's op does; refused where there is none.
std::vector<cudnn::SequenceKernel> kernels_of_rooms();
cudnn::Sequence sequence_of(const KernelRequest& request);

/// Runs it on the host; scratch is as large as the kernel says, with NaN in it.
std::vector<HostTensor> on_host(const cudnn::Sequence& sequence, const KernelRequest& request, std::vector<HostTensor>& inputs);

/// Within 2e-5 of the reference, every output that is wanted.
void expect_as_reference(const cudnn::Sequence& sequence, const KernelRequest& request, std::vector<HostTensor>& inputs, const std::string& what);

}  // namespace belfry::test
