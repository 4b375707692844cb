#include <belfry/ops/reduce/reduce.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/extremes.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

std::vector<bool> reduced_axes(const Attributes& a, int rank) {
  std::vector<int> axes = axes_from_front(a.integers("axes"), rank);
  std::vector<bool> out(static_cast<std::size_t>(rank), axes.empty());
  for (int x : axes) out[static_cast<std::size_t>(x)] = true;
  return out;
}

/// The sizes, with 1 along the axes that are reduced.
template <class Sizes>
Sizes kept(Sizes sizes, const Attributes& a) {
  std::vector<bool> gone = reduced_axes(a, static_cast<int>(sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (gone[i]) sizes[i] = 1;
  return sizes;
}

/// The sizes of the axes that are reduced, or of the others.
Shape dims(const Shape& shape, const Attributes& a, bool reduced) {
  Shape out;
  std::vector<bool> gone = reduced_axes(a, static_cast<int>(shape.size()));
  for (std::size_t i = 0; i < gone.size(); ++i)
    if (gone[i] == reduced) out.push_back(shape[i]);
  return out;
}

std::vector<TensorType> reduced_type(InferContext& c) {
  c.axes("axes");
  return {{c.dtype(0), c.attributes.flag("keep") ? kept(c.shape(0), c.attributes) : dims(c.shape(0), c.attributes, false)}};
}

std::vector<TensorType> infer(InferContext& c) {
  if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
  return reduced_type(c);
}

std::vector<TensorType> infer_float(InferContext& c) {
  c.need_float(0);
  return reduced_type(c);
}

std::vector<TensorType> infer_bool(InferContext& c) {
  if (c.dtype(0) != boolean) c.fail("works on bool; compare or cast first");
  return reduced_type(c);
}

/// Folds every element into its place; `Sum` is the type that sums are taken in.
template <class T, class Sum, class Fold>
void reduce(const Call& c, Sum start, Fold fold) {
  auto x = c.inputs[0].as<T>();
  auto y = c.outputs[0].as<T>();
  Extents ones = kept(c.inputs[0].type.shape, c.attributes);
  struct Cell { Sum sum; };  // bools lie in no vector of their own
  std::vector<Cell> cells(y.size(), Cell{start});
  std::size_t i = 0;
  for_each_index(c.inputs[0].type.shape, [&](const Extents& at) {
    Sum& s = cells[offset_of(at, ones)].sum;
    s = fold(s, static_cast<Sum>(x[i++]));
  });
  std::transform(cells.begin(), cells.end(), y.begin(), [](const Cell& cell) { return static_cast<T>(cell.sum); });
}

void sum_reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) reduce<T>(c, 0.0, [](double a, double b) { return a + b; });
    else if constexpr (!std::is_same_v<T, bool>) reduce<T>(c, std::int64_t{0}, [](std::int64_t a, std::int64_t b) { return a + b; });
  });
}

template <class Fold>
void extreme_reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) reduce<T>(c, Fold::template kStart<T>, Fold{});
  });
}

void prod_reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) reduce<T>(c, 1.0, [](double a, double b) { return a * b; });
    else if constexpr (!std::is_same_v<T, bool>) reduce<T>(c, std::int64_t{1}, [](std::int64_t a, std::int64_t b) { return a * b; });
  });
}

void any_reference(const Call& c) {
  reduce<bool>(c, false, [](bool a, bool b) { return a || b; });
}

void all_reference(const Call& c) {
  reduce<bool>(c, true, [](bool a, bool b) { return a && b; });
}

/// The greatest exponential is 1; where x is nowhere finite the sum is of 0, 1 or NaN as it stands.
void logsumexp_reference(const Call& c) {
  extreme_reference<extremes::Max>(c);
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    Extents ones = kept(c.inputs[0].type.shape, c.attributes);
    std::vector<double> sums(y.size());
    std::size_t i = 0;
    auto top = [&](std::size_t k) { return std::isfinite(y[k]) ? static_cast<double>(y[k]) : 0.0; };
    for_each_index(c.inputs[0].type.shape, [&](const Extents& at) {
      std::size_t k = offset_of(at, ones);
      sums[k] += std::exp(static_cast<double>(x[i++]) - top(k));
    });
    for (std::size_t k = 0; k < y.size(); ++k) y[k] = static_cast<T>(std::log(sums[k]) + top(k));
  });
}

void mean_reference(const Call& c) {
  sum_reference(c);
  visit_float(c.dtype(), [&]<class T>() {
    double n = static_cast<double>(c.inputs[0].type.elements()) / static_cast<double>(std::max<std::int64_t>(c.outputs[0].type.elements(), 1));
    for (T& y : c.outputs[0].as<T>()) y = static_cast<T>(static_cast<double>(y) / n);
  });
}

/// v of the reduced shape, stretched to the shape of the input.
Value like_input(GradientContext& g, Value v) {
  Shape ones = kept(g.input(0).shape(), g.attributes);
  return broadcast_like(v.shape() == ones ? v : reshape(v, ones), g.input(0));
}

ReduceOptions options_of(const GradientContext& g) { return {g.attributes.integers("axes"), g.attributes.flag("keep")}; }

/// dy, shared evenly by the elements that are the greatest or the least.
std::vector<Value> gradient_of_extreme(GradientContext& g) {
  Value hit = cast(equal(g.input(0), like_input(g, g.output())), g.input(0).dtype());
  Value hits = reduce_sum(hit, options_of(g));
  return {hit * like_input(g, g.output_gradient() / hits)};
}

/// dy times the product of the other elements, which is that of all but the zeros where x is the only zero, and 0 beside another zero.
std::vector<Value> gradient_of_prod(GradientContext& g) {
  Value x = g.input(0), zero = constant_like(x, 0), is_zero = equal(x, zero);
  ReduceOptions options = options_of(g);
  Value others = where(is_zero, constant_like(x, 1), x);
  Value product = like_input(g, reduce_prod(others, options));
  Value zeros = like_input(g, reduce_sum(cast(is_zero, x.dtype()), options));
  Value single = where(equal(zeros, constant_like(zeros, 1)), product, zero);
  Value slope = where(is_zero, single, where(equal(zeros, zero), product / others, zero));
  return {slope * like_input(g, g.output_gradient())};
}

std::vector<Value> gradient_of_logsumexp(GradientContext& g) {
  return {exp(g.input(0) - like_input(g, g.output())) * like_input(g, g.output_gradient())};
}

/// No partial value stands for the result: rows stay; where they are reduced x is read by another row axis that is kept, else whole.
Split split_without_partial(const SplitContext& c) {
  Split s = split_reduction(Reduction::sum)(c);
  if (c.states[0].is_partial()) return {{kReplicated}, {kReplicated}};
  if (!s.gives[0].is_partial()) return s;
  std::vector<bool> gone = reduced_axes(c.attributes, static_cast<int>(c.inputs[0].shape.size()));
  for (int axis : symbolic_axes(c.inputs[0].shape)) {
    if (gone[static_cast<std::size_t>(axis)]) continue;
    SplitContext other = c;
    other.states = {rows(axis)};
    return split_reduction(Reduction::sum)(other);
  }
  return {{kReplicated}, {kReplicated}};
}

bool reduces_rows(const GradientContext& g) { return !symbolic_axes(dims(g.input(0).shape(), g.attributes, true)).empty(); }

/// −max(−x); of integers with −1 − x, which overflows nowhere.
std::vector<Value> min_by_max(GradientContext& g) {
  if (!reduces_rows(g)) return {};
  Value x = g.input(0);
  if (is_float(x.dtype())) return {-reduce_max(-x, options_of(g))};
  return {-1 - reduce_max(-1 - x, options_of(g))};
}

/// Whether the greatest is 1: of nothing it is less.
Value any_by_max(Value x, const ReduceOptions& options) {
  Value top = reduce_max(cast(x, i32), options);
  return greater(top, constant_like(top, 0));
}

/// The maximum and the sum of exp(x − maximum): towers join both, where the logarithms of their sums cannot be joined.
std::vector<Value> logsumexp_by_sums(GradientContext& g) {
  if (!reduces_rows(g)) return {};
  Value x = g.input(0), top = reduce_max(x, {g.attributes.integers("axes"), true});
  double largest = x.dtype() == f32 ? static_cast<double>(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max();
  top = where(less_equal(abs(top), constant_like(top, largest)), top, constant_like(top, 0));
  Value y = log(reduce_sum(exp(x - top), {g.attributes.integers("axes"), true})) + top;
  return {g.attributes.flag("keep") ? y : reshape(y, dims(x.shape(), g.attributes, false))};
}

OpDef def(const char* name, ReferenceRule reference, SplitRule split, GradientRule gradient, InferRule infer_rule = infer, bool zero_preserving = true) {
  return {.name = name,
          .attributes = {{"axes", Integers{}}, {"keep", false}},
          .inputs = {"x"},
          .outputs = {wide_output("y")},  // what is summed is not rounded again
          .infer = std::move(infer_rule),
          .reference = std::move(reference),
          .gradient = std::move(gradient),
          .split = std::move(split),
          .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[0].elements()); },
          .zero_preserving = zero_preserving,
          .precision = Precision::follow};
}

}  // namespace

std::vector<OpDef> reduce_defs() {
  std::vector<OpDef> out;
  out.push_back(def("reduce_sum", sum_reference, split_reduction(Reduction::sum),
                    [](GradientContext& g) { return std::vector<Value>{like_input(g, g.output_gradient())}; }));
  out.push_back(def("reduce_max", extreme_reference<extremes::Max>, split_reduction(Reduction::max), gradient_of_extreme));
  out.push_back(def("reduce_min", extreme_reference<extremes::Min>, split_without_partial, gradient_of_extreme));
  out.back().write_out = min_by_max;
  out.push_back(def("reduce_prod", prod_reference, split_without_partial, gradient_of_prod));
  out.push_back(def("reduce_any", any_reference, split_without_partial, no_gradient("bools have no slope"), infer_bool));
  out.back().write_out = [](GradientContext& g) { return reduces_rows(g) ? std::vector<Value>{any_by_max(g.input(0), options_of(g))} : std::vector<Value>{}; };
  out.push_back(def("reduce_all", all_reference, split_without_partial, no_gradient("bools have no slope"), infer_bool));
  out.back().write_out = [](GradientContext& g) { return reduces_rows(g) ? std::vector<Value>{logical_not(any_by_max(logical_not(g.input(0)), options_of(g)))} : std::vector<Value>{}; };
  out.push_back(def("reduce_logsumexp", logsumexp_reference, split_without_partial, gradient_of_logsumexp, infer_float, false));
  out.back().write_out = logsumexp_by_sums;
  return out;
}

OpDef reduce_mean_def() {
  OpDef d = def("reduce_mean", mean_reference, [](const SplitContext& c) { return split_reduction(Reduction::sum)(c); }, [](GradientContext& g) {
    Value count = row_count(g.graph, dims(g.input(0).shape(), g.attributes, true), g.input(0).dtype());
    return std::vector<Value>{like_input(g, g.output_gradient() / count)};
  }, infer_float);
  // A mean over rows is no sum of the towers' means: lower_means writes it out, and what is left is read whole.
  d.split = [](const SplitContext& c) -> Split {
    Split s = split_reduction(Reduction::sum)(c);
    if (s.gives[0].is_partial() && c.states[0].is_rows()) return {{kReplicated}, {kReplicated}};
    return s;
  };
  return d;
}

Value reduce_sum(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_sum", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_max(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_max", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_mean(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_mean", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_min(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_min", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_prod(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_prod", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_any(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_any", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_all(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_all", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }
Value reduce_logsumexp(Value x, const ReduceOptions& o, SourceLine at) { return emit("reduce_logsumexp", {x}, {{"axes", o.axes}, {"keep", o.keep}}, at); }

Moments moments(Value x, const ReduceOptions& o, SourceLine at) {
  SourceGuard guard(graph_of(x, "moments", at), at);
  Value mean = reduce_mean(x, {o.axes, true});
  Value variance = reduce_mean(squared_difference(x, mean), o);
  return {o.keep ? mean : reshape(mean, variance.shape()), variance};
}

Value reduce_variance(Value x, const ReduceOptions& o, SourceLine at) { return moments(x, o, at).variance; }

Value l2_normalize(Value x, Integers axes, double epsilon, SourceLine at) {
  SourceGuard guard(graph_of(x, "l2_normalize", at), at);
  Value squares = reduce_sum(square(x), {std::move(axes), true});
  return x * rsqrt(maximum(squares, constant_like(squares, epsilon)));
}

Value l2_loss(Value x, SourceLine at) {
  SourceGuard guard(graph_of(x, "l2_loss", at), at);
  return reduce_sum(square(x)) * 0.5;
}

Value mean(Value x, SourceLine at) { return reduce_mean(is_float(x.dtype()) ? x : cast(x, f32, at), {}, at); }

}  // namespace belfry
