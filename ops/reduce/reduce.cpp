#include <belfry/ops/reduce/reduce.h>

#include <algorithm>
#include <limits>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

std::vector<bool> reduced_axes(const Attributes& a, int rank) {
  std::vector<int> axes = axes_from_front(a.integers("axes"), rank);
  std::vector<bool> out(static_cast<std::size_t>(rank), axes.empty());
  for (int x : axes) out[static_cast<std::size_t>(x)] = true;
  return out;
}

std::vector<TensorType> infer(InferContext& c) {
  if (c.dtype(0) == boolean || c.dtype(0) == u8) c.fail("works on f32, f64, i32 and i64; cast first");
  c.axes("axes");
  Shape out;
  std::vector<bool> gone = reduced_axes(c.attributes, c.rank(0));
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) out.push_back(c.shape(0)[i]);
    else if (c.attributes.flag("keep")) out.push_back(1);
  }
  return {{c.dtype(0), out}};
}

/// Folds every element into its place; `Sum` is the type that sums are taken in.
template <class T, class Sum, class Fold>
void reduce(const Call& c, Sum start, Fold fold) {
  auto x = c.inputs[0].as<T>();
  auto y = c.outputs[0].as<T>();
  std::vector<bool> gone = reduced_axes(c.attributes, static_cast<int>(c.inputs[0].type.shape.size()));
  Extents kept = c.inputs[0].type.shape;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (gone[i]) kept[i] = 1;
  std::vector<Sum> sums(y.size(), start);
  std::size_t i = 0;
  for_each_index(c.inputs[0].type.shape, [&](const Extents& at) {
    Sum& s = sums[offset_of(at, kept)];
    s = fold(s, static_cast<Sum>(x[i++]));
  });
  std::transform(sums.begin(), sums.end(), y.begin(), [](Sum s) { return static_cast<T>(s); });
}

void sum_reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) reduce<T>(c, 0.0, [](double a, double b) { return a + b; });
    else if constexpr (!std::is_same_v<T, bool>) reduce<T>(c, std::int64_t{0}, [](std::int64_t a, std::int64_t b) { return a + b; });
  });
}

void max_reference(const Call& c) {
  visit_dtype(c.dtype(), [&]<class T>() {
    T least = std::numeric_limits<T>::has_infinity ? static_cast<T>(-std::numeric_limits<T>::infinity()) : std::numeric_limits<T>::lowest();
    if constexpr (!std::is_same_v<T, bool>) reduce<T>(c, least, [](T a, T b) { return a >= b || a != a ? a : b; });
  });
}

void mean_reference(const Call& c) {
  sum_reference(c);
  visit_float(c.dtype(), [&]<class T>() {
    double n = static_cast<double>(c.inputs[0].type.elements()) / static_cast<double>(std::max<std::int64_t>(c.outputs[0].type.elements(), 1));
    for (T& y : c.outputs[0].as<T>()) y = static_cast<T>(static_cast<double>(y) / n);
  });
}

Shape kept_shape(GradientContext& g) {
  Shape out = g.input(0).shape();
  std::vector<bool> gone = reduced_axes(g.attributes, static_cast<int>(out.size()));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (gone[i]) out[i] = 1;
  return out;
}

/// v of the reduced shape, stretched to the shape of the input.
Value like_input(GradientContext& g, Value v) {
  Shape kept = kept_shape(g);
  return broadcast_like(v.shape() == kept ? v : reshape(v, kept), g.input(0));
}

Shape counted_dims(const Shape& shape, const Attributes& a) {
  Shape dims;
  std::vector<bool> gone = reduced_axes(a, static_cast<int>(shape.size()));
  for (std::size_t i = 0; i < gone.size(); ++i)
    if (gone[i]) dims.push_back(shape[i]);
  return dims;
}

OpDef def(const char* name, ReferenceRule reference, SplitRule split, GradientRule gradient) {
  return {.name = name,
          .attributes = {{"axes", Integers{}}, {"keep", false}},
          .inputs = {"x"},
          .infer = infer,
          .reference = std::move(reference),
          .gradient = std::move(gradient),
          .split = std::move(split),
          .flops = [](auto in, auto, const Attributes&) { return static_cast<double>(in[0].elements()); },
          .zero_preserving = true};
}

}  // namespace

std::vector<OpDef> reduce_defs() {
  std::vector<OpDef> out;
  out.push_back(def("reduce_sum", sum_reference, split_reduction(Reduction::sum),
                    [](GradientContext& g) { return std::vector<Value>{like_input(g, g.output_gradient())}; }));
  out.push_back(def("reduce_max", max_reference, split_reduction(Reduction::max), [](GradientContext& g) {
    Value hit = cast(equal(g.input(0), like_input(g, g.output())), g.input(0).dtype());
    Value hits = reduce_sum(hit, {g.attributes.integers("axes"), g.attributes.flag("keep")});
    return std::vector<Value>{hit * like_input(g, g.output_gradient() / hits)};
  }));
  return out;
}

OpDef reduce_mean_def() {
  OpDef d = def("reduce_mean", mean_reference, [](const SplitContext& c) { return split_reduction(Reduction::sum)(c); }, [](GradientContext& g) {
    Value count = row_count(g.graph, counted_dims(g.input(0).shape(), g.attributes), g.input(0).dtype());
    return std::vector<Value>{like_input(g, g.output_gradient() / count)};
  });
  d.infer = [](InferContext& c) {
    c.need_float(0);
    return infer(c);
  };
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
Value mean(Value x, SourceLine at) { return reduce_mean(is_float(x.dtype()) ? x : cast(x, f32, at), {}, at); }

}  // namespace belfry
