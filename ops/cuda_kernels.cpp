#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/half_kernels_internal.h>
#include <belfry/ops/member_kernels_internal.h>

namespace belfry {

KernelTable generated_kernels(const GpuCodeRef& code) {
  std::vector<Kernel> all;
  for (auto* room : {add_n_cuda, argmax_cuda, batch_norm_generated_cuda, binary_cuda, broadcast_like_cuda, cast_cuda, compare_cuda, concat_cuda, cumsum_cuda, gather_cuda, identity_cuda, join_cuda,
                     layer_norm_cuda, local_response_norm_cuda, max_pool2d_generated_cuda, one_hot_cuda, optimizer_cuda, pad_cuda, random_cuda, reduce_cuda, resize_cuda, row_count_cuda,
                     scaled_dot_product_attention_generated_cuda, scatter_add_cuda, slice_cuda, softmax_cuda, softmax_cross_entropy_cuda, take_along_axis_cuda, top_k_cuda, transpose_cuda, unary_cuda})
    for (Kernel& k : room(code)) all.push_back(std::move(k));
  KernelTable table;
  add_with_halves(table, all, cast_cuda(code)[0]);
  table.add(elementwise_tree(code, kElementwise, std::make_shared<const KernelTable>(table)));
  return table;
}

namespace {

/// Those that go before a library's: cuDNN compiles each form of its norms on each thread, and makes more launches.
bool goes_first(const Kernel& k) { return k.name.starts_with("nvrtc_batch_norm"); }

}  // namespace

/// Those of libraries before most that are generated: of the same op, these stand in where a library refuses.
KernelTable cuda_kernels(const std::shared_ptr<CudaToolkit>& toolkit) {
  const GpuCodeRef code = driver_code(toolkit);
  std::vector<Kernel> libraries = conv2d_cuda(toolkit, code);
  for (auto* room : {avg_pool2d_cuda, batch_norm_cuda, matmul_cuda, max_pool2d_cuda, scaled_dot_product_attention_cuda})
    for (Kernel& k : room(toolkit)) libraries.push_back(std::move(k));
  const KernelTable generated = generated_kernels(code);
  KernelTable table;
  for (const Kernel& k : generated.all())
    if (goes_first(k)) table.add(k);
  add_with_halves(table, libraries, cast_cuda(code)[0]);
  for (const Kernel& k : generated.all())
    if (!goes_first(k)) table.add(k);
  // Products whose form or dtype has no epilogue, and groups of a plan that was made for CPUs.
  auto members = std::make_shared<const KernelTable>(table);
  table.add(in_turn(kConv2dBiasRelu, {"conv2d", "add", "relu"}, members, false));
  table.add(in_turn(kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}, members, false));
  table.add(in_turn(kMatmulBias, {"matmul", "add"}, members, false));
  table.add(in_turn(kElementwise, {}, members, false));
  return table;
}

}  // namespace belfry
