#include <string>

#include <fmt/format.h>

#include <belfry/ops/batch_norm/slope_internal.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/mixed_dtypes_internal.h>
#include <belfry/ops/cuda_kernels.h>

namespace belfry {

namespace {

using namespace cudnn;

struct Norm {
  Norm(const KernelRequest& r) : r(r), channels(r.inputs[0].shape.back()), count(r.inputs[0].elements() / channels), epsilon(static_cast<float>(r.attributes->real("epsilon"))) {
    out.engine_bytes = 1024 * channels + (std::int64_t{1} << 20);
  }

  /// Rows, channels, and all between them as one axis.
  Tensor data() const { return picture({r.inputs[0].shape[0], count / r.inputs[0].shape[0], 1, channels}, r.inputs[0].dtype); }
  Tensor channel() const { return per_channel(channels); }
  Place in(std::size_t i) const { return {Place::input, static_cast<std::int64_t>(i)}; }
  /// What nobody reads goes to scratch: cuDNN writes it anyhow.
  Place to(std::size_t i) { return r.wanted[i] ? Place{Place::output, static_cast<std::int64_t>(i)} : out.temporary(r.outputs[i].elements()); }
  Place filled(float value) {
    Place at = out.temporary(channels);
    out.steps.push_back(Fill{value, channels, at});
    return at;
  }
  Place parameter(std::size_t i, float otherwise) { return r.inputs[i].elements() ? in(i) : filled(otherwise); }

  const KernelRequest& r;
  Sequence out;
  std::int64_t channels, count;
  float epsilon;
};

/// Why cuDNN does not take it: data in runs of 16 bytes, of one dtype beside parameters of f32.
std::string objection_to(const Norm& n, std::size_t dy) {
  if (mixed_dtypes(n.r, dy, f32)) return "its data are of several dtypes, or its parameters are not f32";
  const std::int64_t run = 16 / static_cast<std::int64_t>(size_of(n.r.inputs[0].dtype));
  return n.channels % run == 0 ? "" : fmt::format("{} channels are no multiple of {}, which cuDNN's norms read at a time", n.channels, run);
}

/// With nothing kept of the running statistics, cuDNN's new ones are the mean and the sample variance; ours is that times (n − 1) / n.
Sequence forward(const KernelRequest& r) {
  Norm n(r);
  if (n.count < 2) return none("a channel has one element, whose sample variance cuDNN divides by 0");
  if (std::string why = objection_to(n, 0); !why.empty()) return none(why);
  Place zeros = n.filled(0), gamma = n.parameter(1, 1), beta = n.parameter(2, 0), sample_variance = n.to(3);
  Run run;
  std::size_t x = run.add(n.data(), n.in(0)), scale = run.add(n.channel(), gamma), bias = run.add(n.channel(), beta), epsilon = run.add(scalar(n.epsilon));
  std::size_t old_mean = run.add(n.channel(), zeros), old_variance = run.add(n.channel(), zeros), share = run.add(scalar(1));
  std::size_t y = run.add(n.data(), n.to(0)), mean = run.add(n.channel(), n.to(1)), deviation = run.add(n.channel(), n.out.temporary(n.channels));
  std::size_t new_mean = run.add(n.channel(), n.out.temporary(n.channels)), new_variance = run.add(n.channel(), sample_variance);
  run.graph.operations = {{Kind::batch_norm, {x, scale, bias, epsilon, old_mean, old_variance, share, y, mean, deviation, new_mean, new_variance}}};
  n.out.steps.push_back(std::move(run));
  if (!r.wanted[2]) return std::move(n.out);
  Run shrink;
  std::size_t sample = shrink.add(n.channel(), sample_variance), factor = shrink.add(scalar(static_cast<float>(static_cast<double>(n.count - 1) / static_cast<double>(n.count))));
  shrink.graph.operations = {{Kind::mul, {sample, factor, shrink.add(n.channel(), n.to(2))}}};
  n.out.steps.push_back(std::move(shrink));
  return std::move(n.out);
}

Sequence gradient(const KernelRequest& r) {
  Norm n(r);
  if (std::string why = objection_to(n, 5); !why.empty()) return none(why);
  if (slope_of(*r.attributes) != Slope::one) return none("dy is of an activation behind it");
  Place gamma = n.parameter(1, 1), inverse = n.out.temporary(n.channels);
  Run deviation;
  std::size_t variance = deviation.add(n.channel(), n.in(4)), epsilon = deviation.add(scalar(n.epsilon)), sum = deviation.add(unstored(n.channel())), root = deviation.add(unstored(n.channel()));
  deviation.graph.operations = {{Kind::add, {variance, epsilon, sum}}, {Kind::sqrt, {sum, root}}, {Kind::reciprocal, {root, deviation.add(n.channel(), inverse)}}};
  n.out.steps.push_back(std::move(deviation));
  Run run;
  std::size_t x = run.add(n.data(), n.in(0)), mean = run.add(n.channel(), n.in(3)), made = run.add(n.channel(), inverse), scale = run.add(n.channel(), gamma), dy = run.add(n.data(), n.in(5));
  std::size_t dx = run.add(n.data(), n.to(0)), dgamma = run.add(n.channel(), n.to(1)), dbeta = run.add(n.channel(), n.to(2));
  run.graph.operations = {{Kind::batch_norm_gradient, {x, mean, made, scale, dy, dx, dgamma, dbeta}}};
  n.out.steps.push_back(std::move(run));
  return std::move(n.out);
}

}  // namespace

std::vector<SequenceKernel> cudnn::batch_norm_sequences() { return {{"cudnn_batch_norm", "batch_norm", forward, true}, {"cudnn_batch_norm", "batch_norm_gradient", gradient, true}}; }

std::vector<Kernel> batch_norm_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(batch_norm_sequences(), toolkit); }

}  // namespace belfry
