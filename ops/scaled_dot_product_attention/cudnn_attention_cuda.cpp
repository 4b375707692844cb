// Attention of halves, and forward of TF32, by cuDNN, which knows graphs of products and elementwise operations as one flash attention.
#include <limits>
#include <string>

#include <fmt/format.h>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {

namespace {

using namespace cudnn;

constexpr std::int64_t kMostBlocks = 65535;  ///< along the axes of a launch that are not its first

/// Its tensors are (batch, heads, places, features), wherever the heads lie. Halves multiply into sums of f32; weights and slopes are rounded to halves where they are multiplied.
struct Attention : AttentionLayout {
  Attention(const KernelRequest& r, std::size_t mask)
      : AttentionLayout(*r.attributes, r.inputs[0].shape, r.inputs[1].shape, r.inputs[2].shape), r(r), mask(mask), half(r.inputs[0].dtype), per_batch(heads_behind(*r.attributes) || lead.size() > 1 ? lead.back() : 1),
        batch(heads / std::max<std::int64_t>(per_batch, 1)) {}

  /// Of scores.
  Tensor matrix(DType dtype, std::int64_t places, std::int64_t features) const { return {dtype, {batch, per_batch, places, features}, {per_batch * places * features, places * features, features, 1}}; }
  /// Of q, k, v and their gradients.
  Tensor rows(DType dtype, std::int64_t places, std::int64_t features) const { return {dtype, {batch, per_batch, places, features}, {per_batch * apart / beside * places * features, beside > 1 ? features : places * features, step(features), 1}}; }
  /// Of y and its gradient.
  Tensor y_rows(DType dtype) const { return {dtype, {batch, per_batch, queries, value_width}, {per_batch * queries * value_width, beside > 1 ? value_width : queries * value_width, y_step(), 1}}; }
  /// The same memory, read as (features, places).
  static Tensor turned(Tensor t) {
    std::swap(t.dims[2], t.dims[3]);
    std::swap(t.strides[2], t.strides[3]);
    return t;
  }

  std::size_t add(Kind kind, std::vector<std::size_t> tensors, Tensor result, Place place = {}, std::int64_t axis = 0) {
    result.inner = place.where == Place::nowhere;
    tensors.push_back(run.add(std::move(result), place));
    run.graph.operations.push_back({kind, tensors, {}, axis});
    return tensors.back();
  }
  std::size_t scores(Kind kind, std::vector<std::size_t> tensors, DType dtype = f32, std::int64_t axis = 0) { return add(kind, std::move(tensors), matrix(dtype, queries, keys), {}, axis); }
  std::size_t per_query(Kind kind, std::vector<std::size_t> tensors, Place place = {}) { return add(kind, std::move(tensors), matrix(f32, queries, 1), place); }
  /// Rounded, as (keys, queries).
  std::size_t turned_scores(std::size_t of) { return add(Kind::reshape, {of}, turned(matrix(half, queries, keys))); }

  std::size_t input(std::size_t i, Tensor tensor) { return run.add(std::move(tensor), {Place::input, static_cast<std::int64_t>(i)}); }
  Place output(std::size_t i) { return r.wanted[i] ? Place{Place::output, static_cast<std::int64_t>(i)} : out.temporary(r.outputs[i].elements()); }

  /// −∞ for keys behind the query; the diagonal begins at the first of both.
  std::size_t causally(std::size_t s) {
    if (!causal) return s;
    const std::size_t query = scores(Kind::index, {s}, i32, 2), key = scores(Kind::index, {s}, i32, 3);
    return scores(Kind::select, {scores(Kind::at_least, {query, key}, boolean), s, run.add(scalar(-std::numeric_limits<float>::infinity()))});
  }
  Sequence finished(std::int64_t engine_bytes) {
    out.engine_bytes = engine_bytes;
    out.steps.push_back(std::move(run));
    return std::move(out);
  }

  const KernelRequest& r;
  std::size_t mask;
  DType half;
  std::int64_t per_batch, batch;
  Run run;
  Sequence out;
};

/// Why cuDNN does not take it; the widest that it takes on all architectures is `most`.
std::string objection_to(const Attention& a, std::int64_t most) {
  const KernelRequest& r = a.r;
  if (r.outputs[0].dtype != a.half) return "what it makes of halves is f32";
  if (a.mask < r.inputs.size() && r.inputs[a.mask].shape != Extents{0}) return "it has a mask, and cuDNN does not say that a query without keys gives 0, nor that padding stays out of the sums";
  if (r.inputs[1].elements() == 0 || r.inputs[2].elements() == 0) return "there are no elements";
  if (a.width % 8 != 0 || a.value_width % 8 != 0) return fmt::format("{} and {} features are not both multiples of 8, which cuDNN reads at a time", a.width, a.value_width);
  if (a.width > most || a.value_width > most) return fmt::format("{} and {} features are more than the {} that cuDNN takes", a.width, a.value_width, most);
  if (a.causal && a.keys > a.queries) return "no query sees the last keys, and cuDNN multiplies what they hold by 0";
  if (a.batch > kMostBlocks || a.per_batch > kMostBlocks) return "it has more heads than cuDNN can launch";
  return {};
}

/// What engines for f32 do not leave as it is.
Sequence whole() { return none("cuDNN multiplies f32 by tensor cores alone here, which round it"); }

Sequence forward_of(const KernelRequest& r) {
  Attention a(r, 3);
  if (std::string why = objection_to(a, 256); !why.empty()) return none(why);
  const std::size_t q = a.input(0, a.rows(a.half, a.queries, a.width)), k = a.input(1, a.turned(a.rows(a.half, a.keys, a.width))), scale = a.run.add(scalar(static_cast<float>(a.scale)));
  const std::size_t s = a.causally(a.scores(Kind::mul, {a.scores(Kind::matmul, {q, k}), scale})), top = a.per_query(Kind::max_over, {s});
  const std::size_t weights = a.scores(Kind::exp, {a.scores(Kind::sub, {s, top})}), total = a.per_query(Kind::sum_over, {weights});
  a.per_query(Kind::add, {top, a.per_query(Kind::log, {total})}, r.wanted[1] ? a.output(1) : Place{});
  const std::size_t v = a.input(2, a.rows(a.half, a.keys, a.value_width));
  a.add(Kind::matmul, {a.scores(Kind::div, {weights, total}, a.half), v}, a.y_rows(a.half), a.output(0));
  return a.finished(std::int64_t{1} << 20);
}

Sequence forward(const KernelRequest& r) { return is_half(r.inputs[0].dtype) ? forward_of(r) : whole(); }

Sequence forward_tf32(const KernelRequest& r) {
  Sequence out = r.inputs[0].dtype == f32 ? forward_of(r) : none("it multiplies no f32");
  out.leeway.tf32 = true;
  return out;
}

/// An engine that repeats its bits keeps the slopes of all pairs, rounded, for a launch that makes dq of them; others add to dq block by block, in any order.
std::int64_t slope_bytes(const Attention& a, std::int64_t queries, std::int64_t keys) {
  auto up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  return 2 * a.heads * up(a.queries, queries) * up(a.keys, keys);
}

/// cuDNN has none for f32.
Sequence gradient(const KernelRequest& r) {
  if (!is_half(r.inputs[0].dtype)) return whole();
  Attention a(r, 6);
  if (std::string why = objection_to(a, 128); !why.empty()) return none(why);
  if (r.wanted[3]) return none("somebody reads the gradients of the scores, which cuDNN keeps to itself");
  if (a.queries == 1 && a.keys == 1) return none("cuDNN takes no gradient of one query and one key");
  const std::int64_t kept = slope_bytes(a, 64, 128);  // in tiles
  if (kept / 2 >= std::int64_t{1} << 31) return none("it has more pairs of queries and keys than cuDNN counts");
  const std::size_t q = a.input(0, a.rows(a.half, a.queries, a.width)), k = a.input(1, a.turned(a.rows(a.half, a.keys, a.width))), v = a.input(2, a.turned(a.rows(a.half, a.keys, a.value_width)));
  const std::size_t y = a.input(3, a.y_rows(a.half)), log_sum = a.input(4, a.matrix(f32, a.queries, 1)), dy = a.input(5, a.y_rows(a.half));
  const std::size_t scale = a.run.add(scalar(static_cast<float>(a.scale))), one = a.run.add(scalar(1));  // where dropout's scale would stand
  const std::size_t product = a.add(Kind::mul, {dy, y}, a.y_rows(f32));
  const std::size_t own = a.per_query(Kind::mul, {a.per_query(Kind::sum_over, {product}), one}, a.out.temporary(a.heads * a.queries));
  const std::size_t s = a.scores(Kind::mul, {a.scores(Kind::matmul, {q, k}), scale});
  const std::size_t weights = a.scores(Kind::exp, {a.causally(a.scores(Kind::sub, {s, log_sum}))});
  a.add(Kind::matmul, {a.turned_scores(weights), dy}, a.rows(a.half, a.keys, a.value_width), a.output(2));
  const std::size_t apart = a.scores(Kind::sub, {a.scores(Kind::matmul, {dy, v}), own}), slopes = a.scores(Kind::mul, {a.scores(Kind::mul, {apart, weights}), scale});
  a.add(Kind::matmul, {a.turned_scores(slopes), q}, a.rows(a.half, a.keys, a.width), a.output(1));
  a.add(Kind::matmul, {slopes, a.add(Kind::reshape, {k}, a.rows(a.half, a.keys, a.width))}, a.rows(a.half, a.queries, a.width), a.output(0));
  a.run.graph.least_scratch_bytes = slope_bytes(a, 1, 1);
  return a.finished(kept + (std::int64_t{1} << 20));
}

}  // namespace

std::vector<SequenceKernel> cudnn::attention_sequences() {
  return {{"cudnn_attention", "scaled_dot_product_attention", forward, true},
          {"cudnn_attention", "scaled_dot_product_attention_gradient", gradient, true},
          {"cudnn_attention_tf32", "scaled_dot_product_attention", forward_tf32, true, {}, {.tf32 = true}}};
}

std::vector<Kernel> scaled_dot_product_attention_cuda(const std::shared_ptr<CudaToolkit>& toolkit) { return kernels_of(attention_sequences(), toolkit); }

}  // namespace belfry
