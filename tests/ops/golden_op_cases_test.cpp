// Single ops against TensorFlow's outputs and gradients: a table of golden cases and the builders that stand for them, by references and as a session runs them where the golden nets train.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include <nlohmann/json.hpp>

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/session/session.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/graph/gradients.h>

#include "golden.h"
#include "interpreter.h"

namespace belfry::test {
namespace {

const std::filesystem::path kFolder = kShared / "golden/op_cases";

/// What a builder is given: the inputs by name, and the attributes as the index has them.
struct Given {
  std::map<std::string, Value> inputs;
  nlohmann::json attributes;
  Value operator()(const std::string& name) const { return inputs.at(name); }
  double real(const char* name) const { return attributes.at(name).get<double>(); }
  bool flag(const char* name) const { return attributes.at(name).get<bool>(); }
  /// An integer stands for both axes.
  Integers pair(const char* name) const {
    const nlohmann::json& a = attributes.at(name);
    return a.is_array() ? a.get<Integers>() : Integers(2, a.get<std::int64_t>());
  }
  Integers dilations() const { return attributes.contains("dilations") ? pair("dilations") : Integers{1, 1}; }
  Shape shape(const char* name) const {
    auto sizes = attributes.at(name).get<Integers>();
    return Shape(sizes.begin(), sizes.end());
  }
  std::string padding() const { return attributes.at("padding") == "SAME" ? "same" : "valid"; }
  ReduceOptions reduction() const { return {attributes.value("axes", Integers{}), attributes.value("keepdims", false)}; }
};

using Outputs = std::vector<Value>;

struct Row {
  const char* name;  ///< of the golden case
  Outputs (*build)(const Given& g);
};

Outputs conv(const Given& g) { return {conv2d(g("x"), g("w"), {.strides = g.pair("strides"), .padding = g.padding(), .dilations = g.dilations()})}; }
Outputs depthwise(const Given& g) { return {depthwise_conv2d(g("x"), g("w"), {.strides = g.pair("strides"), .padding = g.padding()})}; }
/// The index has pairs (before, after), for these axes on.
PadOptions paddings(const nlohmann::json& pairs, std::size_t first, std::size_t rank) {
  PadOptions out{Integers(rank, 0), Integers(rank, 0)};
  for (std::size_t i = 0; i < pairs.size(); ++i) out.before[first + i] = pairs[i][0], out.after[first + i] = pairs[i][1];
  return out;
}
Outputs padded_conv(const Given& g) { return {conv2d(pad(g("x"), paddings(g.attributes.at("padding"), 1, 4)), g("w"), {.strides = g.pair("strides")})}; }
Outputs padded(const Given& g) {
  PadOptions o = paddings(g.attributes.at("paddings"), 0, g("x").shape().size());
  o.value = g.attributes.value("value", 0.0);
  if (g.attributes.contains("mode")) o.mode = "reflect";
  return {pad(g("x"), o)};
}
Outputs avg_pool(const Given& g) { return {avg_pool2d(g("x"), {.window = g.pair("window"), .strides = g.pair("strides"), .padding = g.padding()})}; }
Outputs lrn(const Given& g) {
  return {local_response_norm(g("x"), {.depth_radius = g.attributes.at("depth_radius").get<std::int64_t>(), .bias = g.real("bias"), .alpha = g.real("alpha"), .beta = g.real("beta")})};
}
Outputs bilinear(const Given& g) { return {resize(g("x"), g.pair("size"))}; }
Outputs standardised(const Given& g) { return {per_image_standardization(g("x"))}; }
Outputs max_pool(const Given& g) { return {max_pool2d(g("x"), {.window = g.pair("window"), .strides = g.pair("strides"), .padding = g.padding()})}; }
Outputs sum_of_products(const Given& g) { return {einsum(g.attributes.at("equation").get<std::string>(), {g("a"), g("b")})}; }
Outputs product(const Given& g) {
  bool ta = g.attributes.value("transpose_a", false), tb = g.attributes.value("transpose_b", false);
  return {ta || tb ? contract(std::string(ta ? "ka" : "ak") + "," + (tb ? "bk" : "kb") + "->ab", g("a"), g("b")) : matmul(g("a"), g("b"))};
}
Outputs clip_by_value(const Given& g) { return {clip(g("x"), g.real("min"), g.real("max"))}; }
Outputs cross_entropy(const Given& g) { return {softmax_cross_entropy(g("logits"), g("labels"))}; }
Outputs categorical(const Given& g) { return {categorical_cross_entropy(g("p"), g("y"))}; }
Outputs clip_by_one_norm(const Given& g) {
  Outputs out = clip_by_global_norm({g("x"), g("y")}, g.real("clip_norm"));
  out.push_back(global_norm({g("x"), g("y")}));
  return out;
}
Outputs smoothed(const Given& g) { return {categorical_cross_entropy(g("z"), g("y"), {.from_logits = true, .label_smoothing = g.real("label_smoothing")})}; }
/// y and the moving statistics after the step; `k` is the output that the variance is taken from.
Outputs batch_norm_trained(const Given& g, int k) {
  Value y = batch_norm(g("x"), g("gamma"), g("beta"), g("moving_mean"), g("moving_variance"), {.epsilon = g.real("epsilon")});
  auto moved = [&](const char* name, int of) { return stop_gradient(g(name) * g.real("momentum") + tower_mean(y.output(of)) * (1 - g.real("momentum"))); };
  return {y, moved("moving_mean", 1), moved("moving_variance", k)};
}
Outputs batch_norm_of_keras(const Given& g) { return batch_norm_trained(g, 2); }
Outputs batch_norm_fused(const Given& g) { return batch_norm_trained(g, 3); }
Outputs batch_norm_outside_training(const Given& g) {
  Outputs out = {batch_norm_inference(g("x"), g("gamma"), g("beta"), g("moving_mean"), g("moving_variance"), g.real("epsilon"))};
  if (g.attributes.contains("momentum")) out.insert(out.end(), {g("moving_mean"), g("moving_variance")});
  return out;
}
Outputs running_sum(const Given& g) {
  return {cumsum(g("x"), {g.attributes.at("axis").get<int>(), g.attributes.value("exclusive", false), g.attributes.value("reverse", false)})};
}
Outputs soft_max(const Given& g) { return {softmax(g("x"), g.attributes.at("axis").get<int>())}; }

/// One line per golden case, in the order of the index.
const std::vector<Row> kRows = {
    {"conv2d_same_s1", conv},
    {"conv2d_valid_s1", conv},
    {"conv2d_same_s2", conv},
    {"conv2d_valid_s2", conv},
    {"conv2d_same_dil2", conv},
    {"conv2d_same_5x5", conv},
    {"conv2d_1x1", conv},
    {"conv2d_1x1_s2_same", conv},
    {"conv2d_1x7", conv},
    {"conv2d_explicit_pad", padded_conv},
    {"conv2d_transpose_same_s2", [](const Given& g) { return Outputs{conv2d_transpose(g("x"), g("w"), {.strides = g.pair("strides"), .padding = g.padding()})}; }},
    {"depthwise_same_s1", depthwise},
    {"depthwise_same_s2", depthwise},
    {"depthwise_valid_s1", depthwise},
    {"depthwise_multiplier_2", depthwise},
    {"bias_add", [](const Given& g) { return Outputs{g("x") + g("b")}; }},
    {"max_pool_2x2_valid", max_pool},
    {"avg_pool_2x2_valid", avg_pool},
    {"max_pool_3x3_s2_same", max_pool},
    {"avg_pool_3x3_s2_same", avg_pool},
    {"max_pool_3x3_s1_same", max_pool},
    {"avg_pool_3x3_s1_same", avg_pool},
    {"max_pool_3x3_s2_valid", max_pool},
    {"avg_pool_3x3_s2_valid", avg_pool},
    {"max_pool_ties", max_pool},
    {"global_avg_pool", [](const Given& g) { return Outputs{global_avg_pool2d(g("x"))}; }},
    {"lrn_tutorial", lrn},
    {"lrn_strong", lrn},
    {"batch_norm_train", batch_norm_of_keras},
    {"batch_norm_train_keras_layer", batch_norm_of_keras},
    {"batch_norm_infer_keras_layer", batch_norm_outside_training},
    {"fused_batch_norm_train", batch_norm_fused},
    {"fused_batch_norm_infer", batch_norm_outside_training},
    {"layer_norm", [](const Given& g) { return Outputs{layer_norm(g("x"), g("gamma"), g("beta"), {.axis = g.attributes.at("axis").get<int>(), .epsilon = g.real("epsilon")})}; }},
    {"moments", [](const Given& g) { Moments m = moments(g("x"), g.reduction()); return Outputs{m.mean, m.variance}; }},
    {"l2_loss", [](const Given& g) { return Outputs{l2_loss(g("x"))}; }},
    {"l2_normalize", [](const Given& g) { return Outputs{l2_normalize(g("x"), {g.attributes.at("axis").get<std::int64_t>()}, g.real("epsilon"))}; }},
    {"dense", [](const Given& g) { return Outputs{matmul(g("x"), g("w")) + g("b")}; }},
    {"matmul_nn", product},
    {"matmul_nt", product},
    {"matmul_tn", product},
    {"matmul_tt", product},
    {"batch_matmul", product},
    {"batch_matmul_broadcast", product},
    {"einsum_dense_last", sum_of_products},
    {"einsum_outer", sum_of_products},
    {"einsum_attention_scores", sum_of_products},
    {"einsum_inner", sum_of_products},
    {"einsum_transpose_sum", sum_of_products},
    {"softmax", soft_max},
    {"softmax_large", soft_max},
    {"softmax_axis1", soft_max},
    {"log_softmax", [](const Given& g) { return Outputs{log_softmax(g("x"), g.attributes.at("axis").get<int>())}; }},
    {"softmax_cross_entropy", cross_entropy},
    {"softmax_cross_entropy_soft_labels", cross_entropy},
    {"sparse_softmax_cross_entropy", [](const Given& g) { return Outputs{sparse_softmax_cross_entropy(g("logits"), g("labels"))}; }},
    {"sigmoid_cross_entropy", [](const Given& g) { return Outputs{sigmoid_cross_entropy(g("logits"), g("labels"))}; }},
    {"categorical_crossentropy_from_probabilities", categorical},
    {"categorical_crossentropy_clipped", categorical},
    {"categorical_crossentropy_label_smoothing", smoothed},
    {"binary_crossentropy_from_logits", [](const Given& g) { return Outputs{binary_cross_entropy(g("z"), g("y"), {.from_logits = true})}; }},
    {"mean_squared_error", [](const Given& g) { return Outputs{mean_squared_error(g("p"), g("y"))}; }},
    {"huber", [](const Given& g) { return Outputs{huber(g("p"), g("y"), g.real("delta"))}; }},
    {"relu", [](const Given& g) { return Outputs{relu(g("x"))}; }},
    {"relu6", [](const Given& g) { return Outputs{relu6(g("x"))}; }},
    {"tanh", [](const Given& g) { return Outputs{tanh(g("x"))}; }},
    {"sigmoid", [](const Given& g) { return Outputs{sigmoid(g("x"))}; }},
    {"softplus", [](const Given& g) { return Outputs{softplus(g("x"))}; }},
    {"elu", [](const Given& g) { return Outputs{elu(g("x"))}; }},
    {"selu", [](const Given& g) { return Outputs{selu(g("x"))}; }},
    {"swish", [](const Given& g) { return Outputs{silu(g("x"))}; }},
    {"erf", [](const Given& g) { return Outputs{erf(g("x"))}; }},
    {"exp", [](const Given& g) { return Outputs{exp(g("x"))}; }},
    {"sin", [](const Given& g) { return Outputs{sin(g("x"))}; }},
    {"cos", [](const Given& g) { return Outputs{cos(g("x"))}; }},
    {"abs", [](const Given& g) { return Outputs{abs(g("x"))}; }},
    {"negative", [](const Given& g) { return Outputs{-g("x")}; }},
    {"square", [](const Given& g) { return Outputs{square(g("x"))}; }},
    {"sign", [](const Given& g) { return Outputs{sign(g("x"))}; }},
    {"floor", [](const Given& g) { return Outputs{floor(g("x"))}; }},
    {"relu_at_zero", [](const Given& g) { return Outputs{relu(g("x"))}; }},
    {"relu6_at_edges", [](const Given& g) { return Outputs{relu6(g("x"))}; }},
    {"leaky_relu", [](const Given& g) { return Outputs{leaky_relu(g("x"), g.real("alpha"))}; }},
    {"gelu_tanh", [](const Given& g) { return Outputs{gelu(g("x"), g.flag("approximate"))}; }},
    {"gelu_erf", [](const Given& g) { return Outputs{gelu(g("x"), g.flag("approximate"))}; }},
    {"log", [](const Given& g) { return Outputs{log(g("x"))}; }},
    {"sqrt", [](const Given& g) { return Outputs{sqrt(g("x"))}; }},
    {"rsqrt", [](const Given& g) { return Outputs{rsqrt(g("x"))}; }},
    {"reciprocal", [](const Given& g) { return Outputs{reciprocal(g("x"))}; }},
    {"log1p", [](const Given& g) { return Outputs{log1p(g("x"))}; }},
    {"add_broadcast", [](const Given& g) { return Outputs{g("a") + g("b")}; }},
    {"subtract_broadcast", [](const Given& g) { return Outputs{g("a") - g("b")}; }},
    {"multiply_broadcast", [](const Given& g) { return Outputs{g("a") * g("b")}; }},
    {"divide_broadcast", [](const Given& g) { return Outputs{g("a") / g("b")}; }},
    {"maximum_broadcast", [](const Given& g) { return Outputs{maximum(g("a"), g("b"))}; }},
    {"minimum_broadcast", [](const Given& g) { return Outputs{minimum(g("a"), g("b"))}; }},
    {"squared_difference_broadcast", [](const Given& g) { return Outputs{squared_difference(g("a"), g("b"))}; }},
    {"maximum_ties", [](const Given& g) { return Outputs{maximum(g("a"), g("b"))}; }},
    {"minimum_ties", [](const Given& g) { return Outputs{minimum(g("a"), g("b"))}; }},
    {"pow", [](const Given& g) { return Outputs{pow(g("a"), g("b"))}; }},
    {"where", [](const Given& g) { return Outputs{where(cast(g("c"), boolean), g("a"), g("b"))}; }},
    {"clip_by_value", clip_by_value},
    {"clip_at_edges", clip_by_value},
    {"clip_by_norm", [](const Given& g) { return Outputs{clip_by_norm(g("x"), g.real("clip_norm"))}; }},
    {"clip_by_global_norm", clip_by_one_norm},
    {"greater", [](const Given& g) { return Outputs{greater(g("a"), g("b"))}; }},
    {"equal", [](const Given& g) { return Outputs{equal(g("a"), g("b"))}; }},
    {"less_equal", [](const Given& g) { return Outputs{less_equal(g("a"), g("b"))}; }},
    {"dropout_given_mask", [](const Given& g) { Value kept = g("x") / (1 - g.real("rate")); return Outputs{where(cast(g("mask"), boolean), kept, constant_like(kept, 0))}; }},
    {"transpose", [](const Given& g) { return Outputs{transpose(g("x"), g.attributes.at("perm").get<Integers>())}; }},
    {"reshape", [](const Given& g) { return Outputs{reshape(g("x"), {4, 6})}; }},
    {"gather_embedding", [](const Given& g) { return Outputs{gather(g("table"), g("ids"))}; }},
    {"gather_axis1", [](const Given& g) { return Outputs{gather(g("x"), g("ids"), 1)}; }},
    {"concat", [](const Given& g) { return Outputs{belfry::concat({g("a"), g("b"), g("c")}, g.attributes.at("axis").get<int>())}; }},
    {"split_even", [](const Given& g) { return split_even(g("x"), g.attributes.at("num").get<int>(), g.attributes.at("axis").get<int>()); }},
    {"split_sizes", [](const Given& g) { return split_sizes(g("x"), g.shape("sizes"), g.attributes.at("axis").get<int>()); }},
    {"slice", [](const Given& g) { return Outputs{slice(g("x"), g.shape("begin"), g.shape("size"))}; }},
    {"strided_slice", [](const Given& g) { return Outputs{strided_slice(g("x"), {kToEnd, 1}, {kFromStart, 6}, {-1, 2})}; }},
    {"stack", [](const Given& g) { return Outputs{belfry::stack({g("a"), g("b")}, g.attributes.at("axis").get<int>())}; }},
    {"tile", [](const Given& g) { return Outputs{tile(g("x"), g.attributes.at("multiples").get<Integers>())}; }},
    {"broadcast_to", [](const Given& g) { return Outputs{broadcast_to(g("x"), g.shape("shape"))}; }},
    {"reverse", [](const Given& g) { return Outputs{reverse(g("x"), g.attributes.at("axis").get<Integers>())}; }},
    {"cumsum", running_sum},
    {"cumsum_exclusive_reverse", running_sum},
    {"unsorted_segment_sum", [](const Given& g) { return Outputs{unsorted_segment_sum(g("x"), g("ids"), g.attributes.at("segments").get<std::int64_t>())}; }},
    {"top_k", [](const Given& g) { TopK t = top_k(g("x"), g.attributes.at("k").get<std::int64_t>()); return Outputs{t.values, t.indices}; }},
    {"in_top_k", [](const Given& g) { return Outputs{in_top_k(g("t"), g("p"), g.attributes.at("k").get<std::int64_t>())}; }},
    {"one_hot", [](const Given& g) { return Outputs{one_hot(g("ids"), g.attributes.at("depth").get<std::int64_t>())}; }},
    {"cast_round", [](const Given& g) { return Outputs{cast(g("x"), i32)}; }},
    {"reduce_sum", [](const Given& g) { return Outputs{reduce_sum(g("x"), g.reduction())}; }},
    {"reduce_mean", [](const Given& g) { return Outputs{reduce_mean(g("x"), g.reduction())}; }},
    {"reduce_max", [](const Given& g) { return Outputs{reduce_max(g("x"), g.reduction())}; }},
    {"reduce_min", [](const Given& g) { return Outputs{reduce_min(g("x"), g.reduction())}; }},
    {"reduce_prod", [](const Given& g) { return Outputs{reduce_prod(g("x"), g.reduction())}; }},
    {"reduce_max_ties", [](const Given& g) { return Outputs{reduce_max(g("x"), g.reduction())}; }},
    {"reduce_sum_keepdims", [](const Given& g) { return Outputs{reduce_sum(g("x"), g.reduction())}; }},
    {"reduce_logsumexp", [](const Given& g) { return Outputs{reduce_logsumexp(g("x"), g.reduction())}; }},
    {"argmax", [](const Given& g) { return Outputs{argmax(g("x"), g.attributes.at("axis").get<int>())}; }},
    {"add_n", [](const Given& g) { return Outputs{add_n({g("a"), g("b"), g("c")})}; }},
    {"adjust_contrast", [](const Given& g) { return Outputs{adjust_contrast(g("x"), g.real("factor"))}; }},
    {"adjust_brightness", [](const Given& g) { return Outputs{adjust_brightness(g("x"), g.real("delta"))}; }},
    {"flip_left_right", [](const Given& g) { return Outputs{reverse(g("x"), {2})}; }},
    {"per_image_standardization", standardised},
    {"per_image_standardization_flat", standardised},
    {"pad_constant", padded},
    {"pad_reflect", padded},
    {"resize_bilinear_up", bilinear},
    {"resize_bilinear_down", bilinear},
    {"resize_nearest", [](const Given& g) { return Outputs{resize(g("x"), g.pair("size"), {.method = "nearest"})}; }},
    {"space_to_depth", [](const Given& g) { return Outputs{space_to_depth(g("x"), g.attributes.at("block").get<std::int64_t>())}; }},
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

nlohmann::json index() { return nlohmann::json::parse(std::ifstream(kFolder / "index.json")).at("cases"); }

/// Every |got − wanted| ≤ atol·scale + rtol·|wanted|.
void expect_close(const HostTensor& got, const HostTensor& wanted, double rtol, double atol, const std::string& what) {
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  HostTensor a = converted(got, f64), b = converted(wanted, f64);
  for (std::size_t i = 0; i < b.data<double>().size(); ++i) {
    double x = a.data<double>()[i], y = b.data<double>()[i];
    ASSERT_TRUE(std::abs(x - y) <= atol + rtol * std::abs(y) || (std::isnan(x) && std::isnan(y)) || x == y) << what << ", element " << i << ": " << x << ", TensorFlow has " << y;
  }
}

/// The files keep a scalar as one row: the shape is the index's.
HostTensor in_shape(const HostTensor& x, const Extents& shape) {
  HostTensor out(x.dtype(), shape);
  if (out.bytes().size() != x.bytes().size()) throw InternalError("the index and the file disagree");
  std::copy(x.bytes().begin(), x.bytes().end(), out.raw());
  return out;
}

double largest(const HostTensor& x) {
  double out = 0;
  const HostTensor wide = converted(x, f64);
  for (double v : wide.data<double>()) out = std::max(out, std::abs(v));
  return out;
}

class GoldenOp : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    NEED_SHARED("golden/op_cases");
  }
};

TEST_P(GoldenOp, has_the_outputs_and_gradients_of_tensorflow) {
  const std::string name = GetParam().name;
  nlohmann::json facts = index().at(name);
  const TensorMap tensors = read_safetensors(kFolder / (name + ".safetensors"));
  Builder b("golden");
  Given given{{}, facts.at("attributes")};
  Tensors feeds;
  auto feed = [&](const std::string& file_name, const std::string& as, const Extents& shape) {
    HostTensor t = in_shape(tensors.at(file_name), shape);
    feeds.emplace(as, t);
    return b.input(as, t.dtype(), Shape(shape.begin(), shape.end()));
  };
  for (const auto& [arg, shape] : facts.at("inputs").items()) given.inputs.emplace(arg, feed("in." + arg, arg, shape.get<Extents>()));
  const auto shapes = facts.at("outputs").get<std::vector<Extents>>();
  Outputs outputs = GetParam().build(given);
  ASSERT_EQ(outputs.size(), shapes.size());
  std::vector<std::pair<std::string, ValueId>> fetches;
  std::vector<ValueId> losses, wanted;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    fetches.emplace_back("out." + std::to_string(k), outputs[k].id);
    std::string cotangent = "cotangent." + std::to_string(k);
    if (tensors.contains(cotangent)) losses.push_back(reduce_sum(outputs[k] * feed(cotangent, "cotangent_" + std::to_string(k), shapes[k])).id);
  }
  auto arguments = facts.at("gradients").get<std::vector<std::string>>();
  for (const std::string& arg : arguments) wanted.push_back(given(arg).id);
  std::vector<Value> found = wanted.empty() ? std::vector<Value>{} : gradients(b.graph(), losses, wanted);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i]) fetches.emplace_back("grad." + arguments[i], found[i].id);
  const double rtol = facts.at("rtol").get<double>(), atol = facts.at("atol").get<double>();
  auto compare = [&](const std::string& by, const std::map<std::string, HostTensor>& got) {
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      std::string out = "out." + std::to_string(k);
      expect_close(got.at(out), in_shape(tensors.at(out), shapes[k]), rtol, atol, by + ", " + out);
    }
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      std::string grad = "grad." + arguments[i];
      const HostTensor& want = tensors.at(grad);
      expect_close(found[i] ? got.at(grad) : HostTensor(want.dtype(), want.shape()), want, rtol, atol * largest(want), by + ", " + grad);  // no gradient stands for zero
    }
  };
  compare("by references", run_whole(b.graph(), feeds, {}, 1, fetches).fetched);

  std::vector<std::string> names;
  for (const auto& [label, v] : fetches) {
    b.output(b.graph().value(v));
    names.push_back(b.graph().name_of(v));
  }
  Session session(std::move(b).build(), Single{.device = golden_place().variables}, golden_place().options);
  Results r = session.run(feeds, names);
  std::map<std::string, HostTensor> got;
  for (std::size_t i = 0; i < names.size(); ++i) got.emplace(fetches[i].first, r[names[i]]);
  compare("by kernels", got);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenOp, testing::ValuesIn(kRows), [](const auto& info) { return std::string(info.param.name); });

TEST(GoldenOps, the_table_names_cases_of_the_index_once_each) {
  NEED_SHARED("golden/op_cases");
  nlohmann::json cases = index();
  std::set<std::string> covered;
  for (const Row& row : kRows) {
    EXPECT_TRUE(cases.contains(row.name)) << row.name;
    EXPECT_TRUE(covered.insert(row.name).second) << row.name << " stands there twice";
  }
  std::string missing;
  for (const auto& [name, facts] : cases.items())
    if (!covered.contains(name)) missing += (missing.empty() ? "" : ", ") + name;
  EXPECT_EQ(missing, "") << covered.size() << " of " << cases.size() << " golden cases have a builder";
}

}  // namespace
}  // namespace belfry::test
