#include "onnx_rows.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace belfry::test::onnx {

namespace {

/// Inputs of one dtype folded by an op of two.
template <Value (*kOp)(Value, Value, SourceLine)>
Outputs folded(Case& c) {
  Value y = c(0);
  for (std::size_t i = 1; i < c.count(); ++i) y = kOp(y, c(i), {});
  return {y};
}
template <Value (*kOp)(Value, SourceLine)>
Outputs unary(Case& c) { return {kOp(c(), {})}; }

Outputs dropout_outside_training(Case& c) {
  bool training = c.has(2) && c.number(2) != 0, drops = !c.has(1) || c.number(1) != 0;
  if (training && drops) throw feature_missing("numpy's generator, which draws the mask of dropout");
  Outputs out = {dropout(c(), seed_of(c.whole.builder.graph()), step_of(c.whole.builder.graph()), c.number(1, "ratio", 0.5))};
  if (c.outputs() > 1) out.push_back(equal(c(), c()));
  return out;
}

Outputs clip_by_inputs(Case& c) {
  Value y = c(0);
  if (c.has(1)) y = maximum(y, c(1));
  if (c.has(2)) y = minimum(y, c(2));
  return {c.has(1) || c.has(2) ? y : identity(y)};
}

Outputs gemm(Case& c) {
  Value a = c.flag("transA") ? transpose(c(0), {1, 0}) : c(0), b = c.flag("transB") ? transpose(c(1), {1, 0}) : c(1);
  Value y = matmul(a, b) * c.real("alpha", 1);
  return {c.has(2) ? y + c(2) * c.real("beta", 1) : y};
}

/// Mixed dtypes are taken in f64; y has the dtype of the base.
Outputs power(Case& c) {
  if (c(0).dtype() == f32 && c(1).dtype() == f32) return {pow(c(0), c(1))};
  return {cast(pow(cast(c(0), f64), cast(c(1), f64)), c(0).dtype())};
}

/// Before version 7 a slope per channel stood alone.
Outputs p_relu(Case& c) {
  Value zero = constant_like(c(0), 0), slope = c(1);
  if (c.whole.opset < 7 && slope.rank() == 1) slope = reshape(slope, {slope.shape()[0], 1, 1});
  return {maximum(c(0), zero) + slope * minimum(c(0), zero)};
}

ReduceOptions reduction(Case& c) { return {c.integers(1, "axes"), c.integer("keepdims", 1) != 0}; }
Outputs sum(Case& c) {
  if (c.flag("noop_with_empty_axes") && reduction(c).axes.empty()) return {identity(c())};
  return {reduce_sum(c(), reduction(c))};
}
Outputs extreme(Case& c, bool largest) {
  if (c().dtype() == boolean) return {largest ? reduce_any(c(), reduction(c)) : reduce_all(c(), reduction(c))};
  return {largest ? reduce_max(c(), reduction(c)) : reduce_min(c(), reduction(c))};
}

Outputs index_of_largest(Case& c) {
  int axis = c.axis(0);
  Value y = c.add("argmax", {c()}, {{"axis", axis}, {"last", c.flag("select_last_index")}});
  return {c.integer("keepdims", 1) ? expand_dims(y, {axis}) : y};
}

Outputs slice_by_inputs(Case& c) {
  auto rank = static_cast<std::size_t>(c().rank());
  Integers starts = c.integers(1), ends = c.integers(2), axes = counted(static_cast<int>(starts.size())), steps(starts.size(), 1);
  if (c.has(3)) axes = c.integers(3);
  if (c.has(4)) steps = c.integers(4);
  Integers begin(rank, 0), end(rank, kToEnd), strides(rank, 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    auto a = static_cast<std::size_t>(from_front(axes[i], c().rank()));
    begin[a] = starts[i], end[a] = ends[i], strides[a] = steps[i];
  }
  return {strided_slice(c(), begin, end, strides)};
}

Outputs split_by_inputs(Case& c) {
  int axis = c.axis(0);
  std::int64_t wide = c.sizes()[static_cast<std::size_t>(from_front(axis, c().rank()))], n = static_cast<std::int64_t>(c.outputs()), part = (wide + n - 1) / n;
  Integers sizes(c.outputs(), part);
  sizes.back() = wide - part * (n - 1);
  if (c.has(1)) sizes = c.integers(1);
  return split_sizes(c(), Shape(sizes.begin(), sizes.end()), axis);
}

Outputs reshape_by_input(Case& c) {
  Integers x = c.sizes(), sizes = c.integers(1);
  std::int64_t known = 1, all = 1;
  for (std::int64_t n : x) all *= n;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !c.flag("allowzero")) sizes[i] = x.at(i);
    if (sizes[i] > 0) known *= sizes[i];
  }
  for (std::int64_t& s : sizes)
    if (s < 0) s = all / known;
  return {reshape(c(), Shape(sizes.begin(), sizes.end()))};
}

Outputs flatten_to_matrix(Case& c) {
  Integers x = c.sizes();
  auto axis = x.begin() + from_front(c.axis(1), c().rank());
  return {reshape(c(), {std::accumulate(x.begin(), axis, std::int64_t{1}, std::multiplies<>()), std::accumulate(axis, x.end(), std::int64_t{1}, std::multiplies<>())})};
}

Outputs transpose_by_perm(Case& c) {
  Integers back = counted(c().rank());
  std::reverse(back.begin(), back.end());
  return {transpose(c(), c.list("perm", back))};
}

/// Negative indices count from the end.
Value from_end(Value indices, std::int64_t n) { return where(less(indices, constant_like(indices, 0)), indices + static_cast<double>(n), indices); }

Outputs gather_along(Case& c) {
  int axis = c.axis(0);
  return {gather(c(0), from_end(c(1), c.sizes()[static_cast<std::size_t>(axis)]), axis)};
}

Outputs one_hot_by_inputs(Case& c) {
  auto depth = static_cast<std::int64_t>(c.number(1));
  std::vector<double> values = c.numbers(2);
  Value indices = c(0).dtype() == f32 ? cast(c(0), i32) : c(0);
  return {one_hot(from_end(indices, depth), depth, {.on = values.at(1), .off = values.at(0), .axis = c.axis(-1)}, c.tensor(2).dtype())};
}

Outputs top_k_by_input(Case& c) {
  TopK t = top_k(c(0), static_cast<std::int64_t>(c.number(1)), {.axis = c.axis(-1), .largest = c.integer("largest", 1) != 0});
  return {t.values, t.indices};
}

struct Row {
  const char* op;  ///< ONNX's name
  Builds build;
};

const Row kRows[] = {
    {"Abs", unary<abs>},
    {"Adagrad", adagrad_update},
    {"Adam", adam_update},
    {"Add", folded<add>},
    {"ArgMax", index_of_largest},
    {"AveragePool", average_pool},
    {"BatchNormalization", batch_normalization},
    {"Clip", clip_by_inputs},
    {"Concat", [](Case& c) { return Outputs{concat(c.all(), c.axis(0))}; }},
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"DepthToSpace", depth_to_space},
    {"Div", folded<div>},
    {"Dropout", dropout_outside_training},
    {"Elu", [](Case& c) { return Outputs{elu(c(), c.real("alpha", 1))}; }},
    {"Exp", unary<exp>},
    {"Flatten", flatten_to_matrix},
    {"Gather", gather_along},
    {"Gelu", [](Case& c) { return Outputs{gelu(c(), c.text("approximate", "none") == "tanh")}; }},
    {"Gemm", gemm},
    {"GlobalAveragePool", [](Case& c) { return Outputs{channels_first(global_avg_pool2d(channels_last(c()), true))}; }},
    {"GlobalMaxPool", [](Case& c) { return Outputs{channels_first(global_max_pool2d(channels_last(c()), true))}; }},
    {"GroupNormalization", group_normalization},
    {"HardSigmoid", [](Case& c) { return Outputs{clip(c() * c.real("alpha", 0.2) + c.real("beta", 0.5), 0, 1)}; }},
    {"HardSwish", unary<hard_swish>},
    {"Identity", [](Case& c) { return Outputs{identity(c())}; }},
    {"InstanceNormalization", instance_normalization},
    {"LRN", local_response_normalization},
    {"LayerNormalization", layer_normalization},
    {"LeakyRelu", [](Case& c) { return Outputs{leaky_relu(c(), c.real("alpha", 0.01))}; }},
    {"Log", unary<log>},
    {"LogSoftmax", [](Case& c) { return Outputs{log_softmax(c(), c.axis(-1))}; }},
    {"MatMul", folded<matmul>},
    {"Max", folded<maximum>},
    {"MaxPool", max_pool},
    {"Mean", [](Case& c) { return Outputs{add_n(c.all()) * (1.0 / static_cast<double>(c.count()))}; }},
    {"Min", folded<minimum>},
    {"Momentum", momentum_update},
    {"Mul", folded<mul>},
    {"Neg", unary<neg>},
    {"NegativeLogLikelihoodLoss", nll_loss},
    {"OneHot", one_hot_by_inputs},
    {"PRelu", p_relu},
    {"Pad", pad_or_crop},
    {"Pow", power},
    {"ReduceL2", [](Case& c) { return Outputs{sqrt(reduce_sum(square(c()), reduction(c)))}; }},
    {"ReduceMax", [](Case& c) { return extreme(c, true); }},
    {"ReduceMean", [](Case& c) { return Outputs{reduce_mean(c(), reduction(c))}; }},
    {"ReduceMin", [](Case& c) { return extreme(c, false); }},
    {"ReduceSum", sum},
    {"ReduceSumSquare", [](Case& c) { return Outputs{reduce_sum(square(c()), reduction(c))}; }},
    {"Relu", unary<relu>},
    {"Reshape", reshape_by_input},
    {"Resize", resize_picture},
    {"Selu", [](Case& c) { return Outputs{elu(c(), c.real("alpha", 1.67326319217681884765625)) * c.real("gamma", 1.05070102214813232421875)}; }},
    {"Sigmoid", unary<sigmoid>},
    {"Slice", slice_by_inputs},
    {"Softmax", [](Case& c) { return Outputs{softmax(c(), c.axis(-1))}; }},
    {"SoftmaxCrossEntropyLoss", cross_entropy_loss},
    {"Softplus", unary<softplus>},
    {"Split", split_by_inputs},
    {"Sqrt", unary<sqrt>},
    {"Squeeze", [](Case& c) { return Outputs{squeeze(c(), c.integers(1, "axes"))}; }},
    {"Sub", folded<sub>},
    {"Sum", [](Case& c) { return Outputs{add_n(c.all())}; }},
    {"Tanh", unary<tanh>},
    {"TopK", top_k_by_input},
    {"Transpose", transpose_by_perm},
    {"Unsqueeze", [](Case& c) { return Outputs{expand_dims(c(), c.integers(1, "axes"))}; }},
};

}  // namespace

Builds builder_of(const std::string& op) {
  const Row* found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.op == op; });
  return found == std::end(kRows) ? nullptr : found->build;
}

Integers counted(int n) {
  Integers out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Value channels_last(Value x) {
  Integers order = counted(x.rank());
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return transpose(x, order);
}
Value channels_first(Value x) {
  Integers order = counted(x.rank());
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return transpose(x, order);
}

}  // namespace belfry::test::onnx
