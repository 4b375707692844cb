#include <algorithm>
#include <numeric>

#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/generated_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

using namespace cudnn;

/// A convolution by its three tensors, whichever of them is the result. cuDNN wants filters as (out, h, w, in); ours are (h, w, in, out), which it takes
/// without a word and may misread: so they are transposed on the way.
struct Problem {
  Problem(const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y)
      : x(x.shape), filter(filter.shape), y(y.shape), x_type(x.dtype), filter_type(filter.dtype), y_type(y.dtype), groups(a.integer("groups")) {
    Sliding s(x.shape, filter.shape[0], filter.shape[1], a.integers("strides"), a);
    window = {{}, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {s.dilation_h, s.dilation_w}};
  }

  std::int64_t taps() const { return filter[0] * filter[1] * filter[2]; }
  std::int64_t elements() const { return taps() * filter[3]; }
  /// One tap on every pixel is a product of matrices as they lie, which cuBLAS multiplies without reordering a thing.
  bool is_product() const { return filter[0] * filter[1] == 1 && groups == 1 && window.strides == Extents{1, 1}; }
  bool in_order() const { return taps() == 1 || filter[3] == 1; }
  Tensor picture_x() const { return picture(x, x_type); }
  Tensor picture_y() const { return picture(y, y_type); }
  Tensor ordered_filter(DType dtype) const { return {dtype, {filter[3], filter[2], filter[0], filter[1]}, {taps(), 1, filter[1] * filter[2], filter[2]}}; }

  Extents x, filter, y;
  DType x_type, filter_type, y_type;
  std::int64_t groups;
  Window window;
};

/// Engines that reorder their tensors hold them once more; those of halves have partial sums of filters beside that, as those of TF32 do.
std::int64_t reserve(const Problem& p) { return 4 * (elements(p.x) + p.elements() + elements(p.y)) + (std::int64_t{1} << 20) + (is_half(p.x_type) ? kPartialSums : 0); }

Sequence product(const Problem& p, Kind kind, Place x, Place filter, Place y) {
  const std::int64_t pixels = p.y[0] * p.y[1] * p.y[2], in = p.x[3], out = p.y[3];
  const cublas_lt::Matrix of_x{in, 1}, of_y{out, 1}, of_filter{out, 1};
  Sequence s;
  s.engine_bytes = cublas_lt::kWorkspaceBytes;
  if (kind == Kind::conv) s.steps = {Multiply{{p.x_type, 1, pixels, out, in, of_x, of_filter, of_y, false, 64, p.y_type}, x, filter, y}};
  else if (kind == Kind::conv_input_gradient) s.steps = {Multiply{{p.y_type, 1, pixels, in, out, of_y, {1, out}, of_x, false, 64, p.x_type}, y, filter, x}};
  else s.steps = {Multiply{{p.x_type, 1, in, out, pixels, {1, in}, of_y, of_filter, false, 64, p.filter_type}, x, y, filter}};
  return s;
}

/// x, filter and y at their places; the result's is where the operation writes.
Sequence convolution(const Problem& p, Kind kind, Place x, Place filter, Place y) {
  if (p.is_product() && cublas_lt::built()) return product(p, kind, x, filter, y);
  const DType made_of = kind == Kind::conv_input_gradient ? p.y_type : p.x_type, makes = kind == Kind::conv ? p.y_type : kind == Kind::conv_input_gradient ? p.x_type : p.filter_type;
  const bool made = kind == Kind::conv_filter_gradient, widens = is_half(made_of) && !is_half(makes);
  // Of halves, cuDNN has engines with results in f32 for plain convolutions, and for gradients where a copy ends them, which it compiles for seconds. Those of filters, which are
  // small, are halves that become f32 behind it.
  if (widens && !made && p.x[3] % 2 != 0) return none("cuDNN has no engine that makes f32 of halves whose channels are not even");
  if (widens && kind == Kind::conv_input_gradient && p.y[3] % 2 != 0) return none("cuDNN has no engine that makes f32 of halves whose channels are not even");
  if (widens && !made && p.groups > 1) return none("cuDNN has no engine that makes f32 of halves here");
  const DType of_filters = made ? made_of : p.filter_type;
  Sequence out;
  out.engine_bytes = reserve(p);
  Run run;
  const Place ordered = p.in_order() && !(made && widens) ? filter : out.temporary(p.elements());
  std::size_t of_x = run.add(p.picture_x(), x), of_filter = run.add(p.ordered_filter(of_filters), ordered), of_y = run.add(p.picture_y(), y);
  run.graph.operations = {{kind, {of_x, of_filter, of_y}, p.window}};
  if (widens && kind == Kind::conv_input_gradient) {
    std::size_t& result = run.graph.operations[0].tensors[0];
    const std::size_t stored = result;
    result = run.add(unstored(run.graph.tensors[stored]));
    run.graph.operations.push_back({Kind::identity, {result, stored}});
  }
  if (!made && !p.in_order()) out.steps.push_back(Transpose{p.taps(), p.filter[3], filter, ordered, of_filters, of_filters});
  out.steps.push_back(std::move(run));
  if (made && !p.in_order()) out.steps.push_back(Transpose{p.filter[3], p.taps(), ordered, filter, of_filters, p.filter_type});
  else if (made && widens) out.steps.push_back(Cast{p.elements(), of_filters, p.filter_type, ordered, filter});
  return out;
}

/// Of what windows hold of the images that are unfolded at once.
constexpr std::int64_t kUnfoldedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostParts = 64;

/// The same by products of matrices whose rows are windows, as many images at a time as divide all of them. Sums over images go on in what is made.
Sequence unfolded(const Problem& p, Kind kind, Place x, Place filter, Place y) {
  if (!cublas_lt::built() || p.is_product() || p.groups != 1 || p.x_type != f32 || p.y_type != f32 || p.filter_type != f32) return none("it is a product already, of groups, or of halves");
  const std::int64_t all = p.x[0], of_image = p.y[1] * p.y[2], row = p.taps(), out = p.filter[3];
  std::int64_t parts = up(all * of_image * row * 4, kUnfoldedBytes);
  while (parts < all && all % parts != 0) ++parts;
  if (parts > std::min(all, kMostParts)) return none("its windows hold too much");
  const std::int64_t images = all / parts, pixels = images * of_image;
  Extents of_x = p.x, of_y = p.y;
  of_x[0] = of_y[0] = images;
  Window window = p.window;
  window.size = {p.filter[0], p.filter[1]};
  Sequence s;
  s.engine_bytes = cublas_lt::kWorkspaceBytes;
  const Place rows = s.temporary(pixels * row);
  const cublas_lt::Matrix windows{row, 1}, turned{1, row}, made{out, 1};
  const std::int64_t alignment = std::gcd<std::int64_t>(64, 4 * pixels * out);
  for (std::int64_t part = 0; part < parts; ++part) {
    Place x_part = x, y_part = y;
    x_part.past = part * 4 * elements(of_x), y_part.past = part * 4 * elements(of_y);
    if (kind == Kind::conv_input_gradient) {
      s.steps.push_back(Multiply{{f32, 1, pixels, row, out, made, {1, out}, windows, false, alignment}, y_part, filter, rows});
      s.steps.push_back(Unfold{of_x, of_y, window, true, rows, x_part});
      continue;
    }
    s.steps.push_back(Unfold{of_x, of_y, window, false, x_part, rows});
    if (kind == Kind::conv) s.steps.push_back(Multiply{{f32, 1, pixels, out, row, windows, made, made, false, alignment}, rows, filter, y_part});
    else s.steps.push_back(Multiply{{f32, 1, row, out, pixels, turned, made, made, part > 0, alignment}, rows, y_part, filter});
  }
  return s;
}

Place in(std::int64_t i) { return {Place::input, i}; }
Place to() { return {Place::output, 0}; }

using Way = Sequence (*)(const Problem&, Kind, Place x, Place filter, Place y);
template <Way way> Sequence forward(const KernelRequest& r) { return way({*r.attributes, r.inputs[0], r.inputs[1], r.outputs[0]}, Kind::conv, in(0), in(1), to()); }
/// With its bias, and another value in a group of three, where cuBLASLt adds them.
Sequence biased(const KernelRequest& r) {
  const Problem p(r.members[0]->attributes, r.inputs[0], r.inputs[1], r.outputs[0]);
  if (!p.is_product() || !cublas_lt::built()) return none("it is no product of matrices");
  if (r.inputs[2].dtype != p.y_type || r.inputs[2].shape != Extents{p.y[3]}) return none("its bias is of another dtype or shape than a pixel of its result");
  Sequence out = product(p, Kind::conv, in(0), in(1), to());
  auto& multiply = std::get<Multiply>(out.steps[0]);
  multiply.product.epilogue = cublas_lt::Epilogue::bias;
  multiply.bias = in(2);
  if (r.members.size() == 2) return out;
  if (r.inputs.size() != 4 || r.inputs[3].dtype != p.y_type || r.inputs[3].shape != p.y) return none("what is added to it is of another dtype or shape");
  multiply.product.accumulate = true;
  multiply.added = in(3);
  return out;
}
template <Way way> Sequence input_gradient(const KernelRequest& r) { return way({*r.attributes, r.outputs[0], r.inputs[1], r.inputs[0]}, Kind::conv_input_gradient, to(), in(1), in(0)); }
template <Way way> Sequence filter_gradient(const KernelRequest& r) { return way({*r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]}, Kind::conv_filter_gradient, in(0), to(), in(1)); }

}  // namespace

std::vector<SequenceKernel> cudnn::conv2d_sequences() {
  const Leeway tf32{.tf32 = true}, any_order{.nondeterministic = true}, both{true, true};
  return {{"cudnn_conv2d", "conv2d", forward<convolution>, true, {tf32}, {}, {}, forward<unfolded>},
          {"cublas_lt_conv2d_bias", kConv2dBias, biased, true, {tf32}, {}, {"conv2d", "add"}},
          {"cublas_lt_conv2d_bias_add", kConv2dBiasAdd, biased, true, {tf32}, {}, {"conv2d", "add", "add"}},
          {"cudnn_conv2d", "conv2d_input_gradient", input_gradient<convolution>, true, {tf32}, {}, {}, input_gradient<unfolded>},
          {"cudnn_conv2d", "conv2d_filter_gradient", filter_gradient<convolution>, true, {both, tf32, any_order}, {}, {}, filter_gradient<unfolded>},
          {"cudnn_conv2d", "conv2d_transpose", input_gradient<convolution>, true, {tf32}, {}, {}, input_gradient<unfolded>}};
}

std::vector<Kernel> conv2d_cuda(const std::shared_ptr<CudaToolkit>& toolkit, const GpuCodeRef& code) { return kernels_of(conv2d_sequences(), toolkit, code); }

}  // namespace belfry
