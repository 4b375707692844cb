// ONNX's own tests of single operators, of those that have a counterpart here: a table of operators and the builders that stand for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <numeric>
#include <set>

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/session/session.h>
#include <belfry/graph/passes/pass.h>

#include "onnx_case.h"

namespace belfry::test {
namespace {

using onnx::Case;
using onnx::LeftOut;

const std::filesystem::path kFolder = std::filesystem::path(BELFRY_SHARED) / "data/onnx/node";

using Outputs = std::vector<Value>;
using Builds = Outputs (*)(Case&);

/// Inputs of one dtype folded by an op of two.
template <Value (*kOp)(Value, Value, SourceLine)>
Outputs folded(Case& c) {
  Value y = c(0);
  for (std::size_t i = 1; i < c.count(); ++i) y = kOp(y, c(i), {});
  return {y};
}
template <Value (*kOp)(Value, SourceLine)>
Outputs unary(Case& c) { return {kOp(c(), {})}; }

Value rows_last(Value x) {
  Integers order(static_cast<std::size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return transpose(x, order);
}
Value rows_first(Value x) {
  Integers order(static_cast<std::size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return transpose(x, order);
}

/// "valid" or "same" where the pads are those; the windows over height and width.
std::string padding(Case& c, const Integers& window, const Integers& strides, const char* op) {
  auto refuse = [&](const char* what) { throw LeftOut{std::string(op) + " here has no " + what}; };
  if (c.list("dilations", {1, 1}) != Integers{1, 1}) refuse("dilations");
  if (c.integer("ceil_mode", 0)) refuse("ceil_mode");
  if (c.integer("group", 1) != 1) refuse("groups");
  std::string automatic = c.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER") return "same";
  if (automatic == "VALID") return "valid";
  Integers same, zero(4, 0);
  bool even = true;  // nothing is left over
  for (std::size_t a : {0, 1}) {
    std::int64_t size = c(0).shape()[a + 2].factor, all = std::max<std::int64_t>(0, ((size + strides[a] - 1) / strides[a] - 1) * strides[a] + window[a] - size);
    same.insert(same.begin() + static_cast<std::ptrdiff_t>(a), all / 2);
    same.push_back(all - all / 2);
    even = even && all % 2 == 0;
  }
  if (automatic == "SAME_LOWER" && even) return "same";
  if (automatic != "NOTSET") refuse("padding SAME_LOWER");
  Integers pads = c.list("pads", zero);
  if (pads == zero) return "valid";
  if (pads != same) refuse("explicit padding");
  return "same";
}

Outputs conv(Case& c) {
  Integers strides = c.list("strides", {1, 1}), window = {c(1).shape()[2].factor, c(1).shape()[3].factor};
  std::string pad = padding(c, window, strides, "conv2d");
  return {rows_first(conv2d(rows_last(c(0)), transpose(c(1), {2, 3, 1, 0}), {.strides = strides, .padding = pad}))};
}

Outputs max_pool(Case& c) {
  if (c.outputs() > 1) throw LeftOut{"max_pool2d's positions count inside the window, not inside the image"};
  Integers window = c.list("kernel_shape", {}), strides = c.list("strides", {1, 1});
  std::string pad = padding(c, window, strides, "max_pool2d");
  return {rows_first(max_pool2d(rows_last(c()), {.window = window, .strides = strides, .padding = pad}))};
}

Outputs batch_normalization(Case& c) {
  c.training = c.integer("training_mode", 0);
  Value y = batch_norm(rows_last(c(0)), c(1), c(2), c(3), c(4), {.epsilon = c.real("epsilon", 1e-5)});
  if (!c.training) return {rows_first(y)};
  double keep = c.real("momentum", 0.9);
  return {rows_first(y), c(3) * keep + y.output(1) * (1 - keep), c(4) * keep + y.output(2) * (1 - keep)};
}

Outputs dropout(Case& c) {
  bool training = c.has(2) && c.number(2) != 0, drops = !c.has(1) || c.number(1) != 0;
  if (training && drops) throw LeftOut{"the mask is that of numpy's generator"};
  Outputs out = {identity(c())};
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
  Value a = c.integer("transA", 0) ? transpose(c(0), {1, 0}) : c(0), b = c.integer("transB", 0) ? transpose(c(1), {1, 0}) : c(1);
  Value y = matmul(a, b) * c.real("alpha", 1);
  return {c.has(2) ? y + c(2) * c.real("beta", 1) : y};
}

/// Mixed dtypes are taken in f64; y has the dtype of the base.
Outputs power(Case& c) {
  if (c(0).dtype() == f32 && c(1).dtype() == f32) return {pow(c(0), c(1))};
  return {cast(pow(cast(c(0), f64), cast(c(1), f64)), c(0).dtype())};
}

ReduceOptions reduction(Case& c) { return {c.has(1) ? c.integers(1) : c.list("axes", {}), c.integer("keepdims", 1) != 0}; }
bool is_noop(Case& c) { return c.integer("noop_with_empty_axes", 0) && reduction(c).axes.empty(); }
Outputs reduce_extreme(Case& c, bool largest) {
  if (c().dtype() == boolean) return {largest ? reduce_any(c(), reduction(c)) : reduce_all(c(), reduction(c))};
  return {largest ? reduce_max(c(), reduction(c)) : reduce_min(c(), reduction(c))};
}

Outputs extreme_index(Case& c) {
  int axis = c.axis(0);
  Value y = c.builder.graph().add("argmax", {c()}, {{"axis", axis}, {"last", c.integer("select_last_index", 0) != 0}});
  return {c.integer("keepdims", 1) ? expand_dims(y, {axis}) : y};
}

Outputs slice_by_inputs(Case& c) {
  auto rank = static_cast<std::size_t>(c().rank());
  Integers starts = c.integers(1), ends = c.integers(2), axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (c.has(3)) axes = c.integers(3);
  if (c.has(4)) steps = c.integers(4);
  Integers begin(rank, 0), end(rank, kToEnd), strides(rank, 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    auto a = static_cast<std::size_t>(axes[i] < 0 ? axes[i] + c().rank() : axes[i]);
    begin[a] = starts[i], end[a] = ends[i], strides[a] = steps[i];
  }
  return {strided_slice(c(), begin, end, strides)};
}

Outputs split_by_inputs(Case& c) {
  int axis = c.axis(0);
  std::int64_t wide = c().shape()[static_cast<std::size_t>(from_front(axis, c().rank()))].factor, n = static_cast<std::int64_t>(c.outputs()), part = (wide + n - 1) / n;
  Integers sizes(c.outputs(), part);
  sizes.back() = wide - part * (n - 1);
  if (c.has(1)) sizes = c.integers(1);
  return split_sizes(c(), Shape(sizes.begin(), sizes.end()), axis);
}

Outputs reshape_by_input(Case& c) {
  Integers sizes = c.integers(1);
  std::int64_t known = 1, all = 1;
  for (const Dim& d : c().shape()) all *= d.factor;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !c.integer("allowzero", 0)) sizes[i] = c().shape()[i].factor;
    if (sizes[i] > 0) known *= sizes[i];
  }
  for (std::int64_t& s : sizes)
    if (s < 0) s = all / known;
  return {reshape(c(), Shape(sizes.begin(), sizes.end()))};
}

Outputs flatten_to_matrix(Case& c) {
  auto axis = static_cast<std::size_t>(from_front(c.axis(1), c().rank()));
  std::int64_t rows = 1, columns = 1;
  for (std::size_t i = 0; i < c().shape().size(); ++i) (i < axis ? rows : columns) *= c().shape()[i].factor;
  return {reshape(c(), {rows, columns})};
}

Outputs transpose_by_perm(Case& c) {
  Integers order(static_cast<std::size_t>(c().rank()));
  std::iota(order.rbegin(), order.rend(), 0);
  return {transpose(c(), c.list("perm", order))};
}

/// Negative indices count from the end.
Value from_end(Value indices, std::int64_t n) { return where(less(indices, constant_like(indices, 0)), indices + static_cast<double>(n), indices); }

Outputs gather_along(Case& c) {
  int axis = c.axis(0);
  return {gather(c(0), from_end(c(1), c(0).shape()[static_cast<std::size_t>(axis)].factor), axis)};
}

Outputs one_hot_by_inputs(Case& c) {
  auto depth = static_cast<std::int64_t>(c.number(1));
  HostTensor values = converted(c.tensor(2), f64);
  Value indices = c(0).dtype() == f32 ? cast(c(0), i32) : c(0);
  return {one_hot(from_end(indices, depth), depth, {.on = values.data<double>()[1], .off = values.data<double>()[0], .axis = c.axis(-1)}, c.tensor(2).dtype())};
}

Outputs top_k_by_input(Case& c) {
  TopK t = top_k(c(0), static_cast<std::int64_t>(c.number(1)), {.axis = c.axis(-1), .largest = c.integer("largest", 1) != 0});
  return {t.values, t.indices};
}

Outputs depth_to_space(Case& c) {
  Shape s = c().shape();
  std::int64_t b = c.integer("blocksize", 1), n = s[0].factor, d = s[1].factor / (b * b), h = s[2].factor, w = s[3].factor;
  bool crd = c.text("mode", "DCR") == "CRD";
  Value x = reshape(c(), crd ? Shape{n, d, b, b, h, w} : Shape{n, b, b, d, h, w});
  return {reshape(transpose(x, crd ? Integers{0, 1, 4, 2, 5, 3} : Integers{0, 3, 4, 1, 5, 2}), {n, d, h * b, w * b})};
}

Outputs p_relu(Case& c) {
  Value zero = constant_like(c(0), 0);
  return {maximum(c(0), zero) + c(1) * minimum(c(0), zero)};
}

/// Losses per example, weighed by class, without those of the class that is ignored.
Value weighed(Case& c, Value losses, Value target, Value is_ignored) {
  Value one = constant_like(losses, 1), w = c.has(2) ? gather(c(2), target) : broadcast_like(one, losses);
  if (is_ignored) w = where(is_ignored, constant_like(w, 0), w);
  losses = losses * w;
  std::string how = c.text("reduction", "mean");
  return how == "none" ? losses : how == "sum" ? reduce_sum(losses) : reduce_sum(losses) / reduce_sum(w);
}

struct Target {
  Value safe, ignored;
};
Target target_of(Case& c) {
  Value t = c(1);
  if (!c.has("ignore_index")) return {t, {}};
  Value ignored = equal(t, constant_like(t, static_cast<double>(c.integer("ignore_index", 0))));
  return {where(ignored, constant_like(t, 0), t), ignored};
}

Outputs nll_loss(Case& c) {
  Target t = target_of(c);
  return {weighed(c, -squeeze(take_along_axis(c(0), expand_dims(t.safe, {1}), 1), {1}), t.safe, t.ignored)};
}

Outputs cross_entropy_loss(Case& c) {
  Target t = target_of(c);
  Value losses = sparse_softmax_cross_entropy(rows_last(c(0)), t.safe);
  Outputs out = {weighed(c, losses, t.safe, t.ignored)};
  if (c.outputs() > 1) out.push_back(rows_first(losses.output(1)));
  return out;
}

/// Inputs are rate, step and, for each of `kinds`, one tensor per variable; outputs are those of all variables, kind by kind.
Outputs update(Case& c, std::size_t kinds, Outputs (*of_one)(Case& c, Value rate, const Outputs& in)) {
  std::size_t variables = (c.count() - 2) / kinds;
  Outputs out(c.outputs());
  for (std::size_t v = 0; v < variables; ++v) {
    Outputs in;
    for (std::size_t k = 0; k < kinds; ++k) in.push_back(c(2 + k * variables + v));
    in[1] = in[1] + in[0] * c.real("norm_coefficient", 0);  // the gradient, with weight decay
    Outputs one = of_one(c, reshape(c(0), {}), in);
    for (std::size_t k = 0; k < one.size(); ++k) out.at(k * variables + v) = one[k];
  }
  return out;
}

Outputs momentum(Case& c) {
  return update(c, 3, [](Case& c, Value rate, const Outputs& in) {
    Value gradient = c.number(1) > 0 ? in[1] * c.real("beta", 1) : in[1];
    Value y = c.builder.graph().add("momentum", {in[0], in[2], gradient, rate}, {{"momentum", c.real("alpha", 0)}, {"nesterov", c.text("mode", "standard") == "nesterov"}});
    return Outputs{y, y.output(1)};
  });
}

Outputs adam(Case& c) {
  return update(c, 4, [](Case& c, Value rate, const Outputs& in) {
    double beta1 = c.real("alpha", 0.9), beta2 = c.real("beta", 0.999), t = c.number(1);
    if (t > 0) rate = rate * (std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)));
    Value y = c.builder.graph().add("adam", {in[0], in[2], in[3], in[1], rate}, {{"beta1", beta1}, {"beta2", beta2}, {"epsilon", c.real("epsilon", 1e-6)}});
    return Outputs{y, y.output(1), y.output(2)};
  });
}

struct Row {
  const char* op;  ///< ONNX's name
  Builds build;
};

const std::vector<Row> kRows = {
    {"Abs", unary<abs>},
    {"Adam", adam},
    {"Add", folded<add>},
    {"ArgMax", extreme_index},
    {"BatchNormalization", batch_normalization},
    {"Clip", clip_by_inputs},
    {"Concat", [](Case& c) { return Outputs{concat(c.all(), c.axis(0))}; }},
    {"Conv", conv},
    {"DepthToSpace", depth_to_space},
    {"Div", folded<div>},
    {"Dropout", dropout},
    {"Elu", [](Case& c) { return Outputs{elu(c(), c.real("alpha", 1))}; }},
    {"Exp", unary<exp>},
    {"Flatten", flatten_to_matrix},
    {"Gather", gather_along},
    {"Gelu", [](Case& c) { return Outputs{gelu(c(), c.text("approximate", "none") == "tanh")}; }},
    {"Gemm", gemm},
    {"GlobalAveragePool", [](Case& c) { return Outputs{reduce_mean(c(), {{2, 3}, true})}; }},
    {"GlobalMaxPool", [](Case& c) { return Outputs{reduce_max(c(), {{2, 3}, true})}; }},
    {"HardSigmoid", [](Case& c) { return Outputs{clip(c() * c.real("alpha", 0.2) + c.real("beta", 0.5), 0, 1)}; }},
    {"HardSwish", unary<hard_swish>},
    {"Identity", [](Case& c) { return Outputs{identity(c())}; }},
    {"LeakyRelu", [](Case& c) { return Outputs{leaky_relu(c(), c.real("alpha", 0.01))}; }},
    {"Log", unary<log>},
    {"LogSoftmax", [](Case& c) { return Outputs{log_softmax(c(), c.axis(-1))}; }},
    {"MatMul", folded<matmul>},
    {"Max", folded<maximum>},
    {"MaxPool", max_pool},
    {"Mean", [](Case& c) { return Outputs{add_n(c.all()) * (1.0 / static_cast<double>(c.count()))}; }},
    {"Min", folded<minimum>},
    {"Momentum", momentum},
    {"Mul", folded<mul>},
    {"Neg", unary<neg>},
    {"NegativeLogLikelihoodLoss", nll_loss},
    {"OneHot", one_hot_by_inputs},
    {"PRelu", p_relu},
    {"Pow", power},
    {"ReduceL2", [](Case& c) { return Outputs{sqrt(reduce_sum(square(c()), reduction(c)))}; }},
    {"ReduceMax", [](Case& c) { return reduce_extreme(c, true); }},
    {"ReduceMean", [](Case& c) { return Outputs{reduce_mean(c(), reduction(c))}; }},
    {"ReduceMin", [](Case& c) { return reduce_extreme(c, false); }},
    {"ReduceSum", [](Case& c) { return Outputs{is_noop(c) ? identity(c()) : reduce_sum(c(), reduction(c))}; }},
    {"ReduceSumSquare", [](Case& c) { return Outputs{reduce_sum(square(c()), reduction(c))}; }},
    {"Relu", unary<relu>},
    {"Reshape", reshape_by_input},
    {"Selu", [](Case& c) { return Outputs{elu(c(), c.real("alpha", 1.67326319217681884765625)) * c.real("gamma", 1.05070102214813232421875)}; }},
    {"Sigmoid", unary<sigmoid>},
    {"Slice", slice_by_inputs},
    {"Softmax", [](Case& c) { return Outputs{softmax(c(), c.axis(-1))}; }},
    {"SoftmaxCrossEntropyLoss", cross_entropy_loss},
    {"Softplus", unary<softplus>},
    {"Split", split_by_inputs},
    {"Sqrt", unary<sqrt>},
    {"Squeeze", [](Case& c) { return Outputs{squeeze(c(), c.integers(1))}; }},
    {"Sub", folded<sub>},
    {"Sum", [](Case& c) { return Outputs{add_n(c.all())}; }},
    {"Tanh", unary<tanh>},
    {"TopK", top_k_by_input},
    {"Transpose", transpose_by_perm},
    {"Unsqueeze", [](Case& c) { return Outputs{expand_dims(c(), c.integers(1))}; }},
};

/// "" where every output is ONNX's; indices may be narrower integers.
std::string difference_of(const HostTensor& got, const HostTensor& wanted) {
  if (got.shape() != wanted.shape()) return "shape " + to_string(std::span(got.shape())) + ", not " + to_string(std::span(wanted.shape()));
  bool alike = got.dtype() == wanted.dtype() || (got.dtype() == i32 && wanted.dtype() == i64);
  if (!alike) return std::string(name_of(got.dtype())) + ", not " + std::string(name_of(wanted.dtype()));
  HostTensor a = converted(got, f64), b = converted(wanted, f64);
  for (std::size_t i = 0; i < a.data<double>().size(); ++i) {
    double x = a.data<double>()[i], y = b.data<double>()[i];
    if (!(x == y || std::abs(x - y) <= 1e-6 + 1e-5 * std::abs(y) || (std::isnan(x) && std::isnan(y)))) return "element " + std::to_string(i) + " is " + std::to_string(x) + ", not " + std::to_string(y);
  }
  return {};
}

/// What is wrong by the references or by the CPU's kernels; throws LeftOut.
std::string run_case(const std::filesystem::path& folder) {
  std::vector<onnx::Node> nodes = onnx::nodes_of(folder / "model.onnx");
  if (nodes.size() != 1) return "is no case of a single node";
  auto found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.op == nodes[0].op; });
  if (found == kRows.end()) throw LeftOut{"there is no builder for " + nodes[0].op};
  Builder b("onnx");
  Case c(b, nodes[0], onnx::tensors_of(folder / "test_data_set_0", "input"));
  Outputs outputs = found->build(c);
  std::vector<HostTensor> wanted = onnx::tensors_of(folder / "test_data_set_0", "output");
  if (outputs.size() != wanted.size() || wanted.empty()) return std::to_string(outputs.size()) + " outputs, not " + std::to_string(wanted.size());
  std::vector<std::string> names;
  for (Value& y : outputs) {
    b.output(y);
    names.push_back(y.name());
  }
  bool training = c.training;
  Tensors feeds = c.feeds;
  std::vector<std::pair<std::string, ValueId>> fetches;
  for (std::size_t k = 0; k < outputs.size(); ++k) fetches.emplace_back(std::to_string(k), outputs[k].id);
  Graph graph = training ? b.graph() : for_inference(b.graph(), names);
  for (auto& [label, id] : fetches) id = graph.at(names[static_cast<std::size_t>(std::stoi(label))]);
  Tensors by_references = run_whole(graph, feeds, {}, 1, fetches).fetched;
  Session session(std::move(b).build());
  Results by_kernels = training ? session.run(feeds, names) : session.predict(feeds, names);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (std::string bad = difference_of(by_references.at(std::to_string(k)), wanted[k]); !bad.empty()) return "by references, output " + std::to_string(k) + ": " + bad;
    if (std::string bad = difference_of(by_kernels[names[k]], wanted[k]); !bad.empty()) return "by kernels, output " + std::to_string(k) + ": " + bad;
  }
  return {};
}

TEST(OnnxNodes, of_operators_that_exist_here_give_the_results_of_the_suite) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "ONNX's node tests are not beside the source tree";
  std::set<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) folders.insert(entry.path());
  std::map<std::string, std::vector<std::string>> left_out;
  int passed = 0, tried = 0;
  for (const auto& folder : folders) {
    std::string name = folder.filename().string(), wrong;
    try {
      wrong = run_case(folder);
    } catch (const LeftOut& l) {
      left_out[l.reason].push_back(name);
      continue;
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    ++tried;
    passed += wrong.empty();
    EXPECT_EQ(wrong, "") << name;
  }
  EXPECT_GT(passed, 0);
  std::cout << passed << " of " << folders.size() << " cases pass, " << tried - passed << " fail, " << static_cast<int>(folders.size()) - tried << " are left out:\n";
  for (const auto& [reason, names] : left_out) {
    std::cout << "  " << names.size() << ": " << reason << ":";
    for (const std::string& n : names) std::cout << " " << n;
    std::cout << "\n";
  }
  RecordProperty("passed", passed);
}

}  // namespace
}  // namespace belfry::test
