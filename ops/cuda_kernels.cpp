#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/half_kernels_internal.h>
#include <belfry/ops/member_kernels_internal.h>

namespace belfry {

KernelTable generated_kernels(const GpuCodeRef& code) {
  std::vector<Kernel> all;
  for (auto* room : {add_n_cuda, argmax_cuda, avg_pool2d_generated_cuda, batch_norm_generated_cuda, binary_cuda, broadcast_like_cuda, cast_cuda, compare_cuda, concat_cuda, conv2d_generated_cuda, cumsum_cuda, few_channels_cuda, gather_cuda, identity_cuda, join_cuda,
                     layer_norm_cuda, local_response_norm_cuda, max_pool2d_generated_cuda, one_hot_cuda, optimizer_cuda, pad_cuda, random_cuda, reduce_cuda, resize_cuda, row_count_cuda,
                     attention_gradient_tf32_cuda, attention_tf32_cuda, packed_attention_generated_cuda, scaled_dot_product_attention_generated_cuda, scatter_add_cuda, slice_cuda, softmax_cuda, softmax_cross_entropy_cuda, take_along_axis_cuda, top_k_cuda, transpose_cuda, unary_cuda})
    for (Kernel& k : room(code)) all.push_back(std::move(k));
  KernelTable table;
  add_with_halves(table, all, cast_cuda(code)[0]);
  const auto expressions = std::make_shared<const KernelTable>(table);
  table.add(elementwise_tree(code, kElementwise, expressions));
  table.add(batch_norm_with_elementwise(code, expressions));
  table.add(norm_gradient_with_elementwise(code, expressions));
  table.add(depthwise_with_elementwise(code, expressions));
  table.add(elementwise_with_sum(code, expressions));
  return table;
}

/// Products of libraries first: a generated kernel of the same op stands in where they refuse, but that those on tensor cores go before cuDNN's. All else of theirs stands in where none is
/// generated: cuDNN's pools and norms are compiled for each form, a second each.
KernelTable cuda_kernels(const std::shared_ptr<CudaToolkit>& toolkit) {
  const GpuCodeRef code = driver_code(toolkit);
  const Kernel cast = cast_cuda(code)[0];
  std::vector<Kernel> products = matmul_cuda(toolkit), others = conv2d_cuda(toolkit, code);
  for (auto* room : {packed_attention_cuda, scaled_dot_product_attention_cuda})
    for (Kernel& k : room(toolkit)) products.push_back(std::move(k));
  for (auto* room : {avg_pool2d_cuda, batch_norm_cuda, max_pool2d_cuda})
    for (Kernel& k : room(toolkit)) others.push_back(std::move(k));
  KernelTable table;
  table.finish = [code] { code->load(); };
  const KernelTable generated = generated_kernels(code);
  auto goes_first = [](const Kernel& k) { return k.leeway.tf32 && !k.name.ends_with(kInF32); };
  for (const Kernel& k : generated.all())
    if (goes_first(k)) table.add(k);
  add_with_halves(table, products, cast);
  for (const Kernel& k : generated.all())
    if (!goes_first(k)) table.add(k);
  add_with_halves(table, others, cast);
  // Products whose form or dtype has no epilogue, and groups of a plan that was made for CPUs.
  auto members = std::make_shared<const KernelTable>(table);
  table.add(in_turn(kConv2dBias, {"conv2d", "add"}, members, false));
  table.add(in_turn(kConv2dBiasAdd, {"conv2d", "add", "add"}, members, false));
  table.add(in_turn(kConv2dBiasRelu, {"conv2d", "add", "relu"}, members, false));
  table.add(in_turn(kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}, members, false));
  table.add(in_turn(kMatmulBias, {"matmul", "add"}, members, false));
  table.add(in_turn(kMatmulAdd, {}, members, false));
  table.add(in_turn(kElementwise, {}, members, false));
  table.add(in_turn(kWithElementwise, {}, members, false));
  return table;
}

}  // namespace belfry
