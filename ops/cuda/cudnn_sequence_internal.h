// What a kernel of cuDNN does, as plain data that needs neither library nor GPU: graphs of operations, and what their tensors' layouts ask for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>
#include <belfry/ops/cuda/sequence_steps_internal.h>

namespace belfry::cudnn {

struct Sequence {
  std::vector<std::variant<Run, Transpose, Cast, Multiply, Unfold, Fill>> steps;
  std::int64_t own_bytes = 0;      ///< of scratch, before what engines have
  std::int64_t engine_bytes = 0;   ///< that engines may use, one after the other
  std::string refusal;             ///< why there is none
  Leeway leeway = {};              ///< that its runs and products take

  Place temporary(std::int64_t elements) {
    Place out{Place::scratch, own_bytes};
    own_bytes += (elements * 4 + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return out;
  }
  std::int64_t scratch_bytes() const { return own_bytes + engine_bytes ? own_bytes + engine_bytes + kWorkspaceAlignment : 0; }
};
inline Sequence none(std::string why) {
  Sequence out;
  out.refusal = std::move(why);
  return out;
}

/// (n, h, w, c) in memory.
inline Tensor picture(const Extents& nhwc, DType dtype = f32) { return {dtype, {nhwc[0], nhwc[3], nhwc[1], nhwc[2]}, {nhwc[1] * nhwc[2] * nhwc[3], 1, nhwc[2] * nhwc[3], nhwc[3]}}; }
inline Tensor per_channel(std::int64_t c, DType dtype = f32) { return {dtype, {1, c, 1, 1}, {c, 1, c, c}}; }
/// Between operations there is nothing to round: f32.
inline Tensor unstored(Tensor t) {
  t.inner = true;
  t.dtype = f32;
  return t;
}
inline Tensor scalar(float v) { return {f32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, v}; }

/// Pools want none; what a later cuDNN may.
inline constexpr std::int64_t kPoolBytes = std::int64_t{1} << 20;

/// Of filters, that engines with tensor cores hold beside reordered tensors.
inline constexpr std::int64_t kPartialSums = std::int64_t{15} << 20;

/// A kernel as a sequence: a pure function of the request.
struct SequenceKernel {
  std::string name, op;
  std::function<Sequence(const KernelRequest&)> sequence;
  bool halves = false;             ///< takes f16 and bf16, multiplied into sums of f32
  std::vector<Leeway> leeways = {};  ///< each with which cuDNN has faster engines for it, best first
  Leeway leeway = {};              ///< that it takes
  std::vector<std::string> members = {};  ///< of a fused kind
  std::function<Sequence(const KernelRequest&)> unfolded = {};  ///< the same by products of cuBLASLt, whose algorithms are further engines, "unfolded_algo66{…}"
};
/// The kernel itself behind those that take leeway, best first.
std::vector<SequenceKernel> with_leeways(const SequenceKernel& kernel);
/// All of them with their leeways. `code` for sequences that transpose or cast.
std::vector<Kernel> kernels_of(const std::vector<SequenceKernel>& sequences, const std::shared_ptr<CudaToolkit>& toolkit, const GpuCodeRef& code = {});

/// The engines of a sequence's runs, in order. DeviceError where cuDNN has none within its bytes.
std::vector<std::unique_ptr<Engine>> engines_of(const Sequence& sequence, const std::shared_ptr<Target>& target);

/// The first engines that fit a sequence of one run: what is worth timing. None for other sequences.
inline constexpr std::size_t kMostTimedEngines = 5;
std::vector<std::string> engine_names(const Sequence& sequence, const std::shared_ptr<Target>& target);

/// Why cuDNN's kernels do not take a request at all; empty if nothing is in the way: f32 or halves, some elements, and no more than cuDNN counts.
std::string objection(const KernelRequest& request);

std::vector<SequenceKernel> attention_sequences();
std::vector<SequenceKernel> avg_pool2d_sequences();
std::vector<SequenceKernel> batch_norm_sequences();
std::vector<SequenceKernel> conv2d_sequences();
std::vector<SequenceKernel> max_pool2d_sequences();
std::vector<SequenceKernel> packed_attention_sequences();

}  // namespace belfry::cudnn
