#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/packed_kernels_internal.h>

namespace belfry {

namespace {

using namespace cudnn;

/// What runs on q, k and v apart, on the parts of one value: `side`'s first three become its first.
void pack(Run& run, Place::Where side, std::int64_t bytes) {
  for (Place& p : run.places) {
    if (p.where != side) continue;
    if (p.at < 3) p.past += p.at * bytes;
    p.at = p.at < 3 ? 0 : p.at - 2;
  }
}

SequenceKernel packed_sequence(SequenceKernel k) {
  const bool backward = k.op != "scaled_dot_product_attention";
  k.op = backward ? "packed_attention_gradient" : "packed_attention";
  k.sequence = [backward, of = k.sequence](const KernelRequest& r) {
    Sequence out = of(apart(r));
    for (auto& step : out.steps) {
      Run& run = std::get<Run>(step);
      pack(run, Place::input, bytes_of_part(r.inputs[0]));
      if (backward) pack(run, Place::output, bytes_of_part(r.outputs[0]));
    }
    return out;
  };
  return k;
}

}  // namespace

std::vector<Kernel> packed_attention_generated_cuda(const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (auto* of : {attention_gradient_tf32_cuda, attention_tf32_cuda, scaled_dot_product_attention_generated_cuda})
    for (Kernel& k : of(code)) out.push_back(packed(std::move(k)));
  return out;
}

std::vector<SequenceKernel> cudnn::packed_attention_sequences() {
  std::vector<SequenceKernel> out;
  for (SequenceKernel& k : attention_sequences()) out.push_back(packed_sequence(std::move(k)));
  return out;
}

std::vector<Kernel> packed_attention_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(packed_attention_sequences(), toolkit); }

}  // namespace belfry
