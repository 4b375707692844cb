#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

using namespace cudnn;

/// Without the index, of which cuDNN does not say what its numbers mean.
Sequence forward(const KernelRequest& r) {
  if (r.wanted.size() > 1 && r.wanted[1]) return none("somebody reads the index, and cuDNN's is not said to be the position in the window");
  Sliding s = pool_sliding(*r.attributes, r.inputs[0].shape);
  if (s.dilation_h != 1 || s.dilation_w != 1) return none("cuDNN's pools take no dilations");
  Sequence out;
  out.engine_bytes = kPoolBytes;
  Run run;
  std::size_t from = run.add(picture(r.inputs[0].shape), {Place::input, 0}), to = run.add(picture(r.outputs[0].shape), {Place::output, 0});
  run.graph.operations = {{Kind::max_pool, {from, to}, {{s.window_h, s.window_w}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {}}}};
  out.steps = {std::move(run)};
  return out;
}

}  // namespace

std::vector<SequenceKernel> cudnn::max_pool2d_sequences() { return {{"cudnn_max_pool2d", "max_pool2d", forward}}; }

std::vector<Kernel> max_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(max_pool2d_sequences(), toolkit); }

}  // namespace belfry
