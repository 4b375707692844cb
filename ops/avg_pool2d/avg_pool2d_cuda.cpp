#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

using namespace cudnn;

/// The mean of what lies on the picture, as cuDNN's that leaves padding out; its gradient goes the other way.
Sequence pool(const KernelRequest& r, Kind kind) {
  const bool backward = kind == Kind::avg_pool_gradient;
  Sliding s = pool_sliding(*r.attributes, (backward ? r.outputs : r.inputs)[0].shape);
  if (s.dilation_h != 1 || s.dilation_w != 1) return none("cuDNN's pools take no dilations");
  Sequence out;
  out.engine_bytes = kPoolBytes;
  Run run;
  std::size_t from = run.add(picture(r.inputs[0].shape, r.inputs[0].dtype), {Place::input, 0}), to = run.add(picture(r.outputs[0].shape, r.outputs[0].dtype), {Place::output, 0});
  run.graph.operations = {{kind, {from, to}, {{s.window_h, s.window_w}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {}}}};
  out.steps = {std::move(run)};
  return out;
}

}  // namespace

std::vector<SequenceKernel> cudnn::avg_pool2d_sequences() {
  return {{"cudnn_avg_pool2d", "avg_pool2d", [](const KernelRequest& r) { return pool(r, Kind::avg_pool); }, true},
          {"cudnn_avg_pool2d", "avg_pool2d_gradient", [](const KernelRequest& r) { return pool(r, Kind::avg_pool_gradient); }, true}};
}

std::vector<Kernel> avg_pool2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(avg_pool2d_sequences(), toolkit); }

}  // namespace belfry
