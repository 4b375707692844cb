#include <belfry/ops/batch_norm/batch_norm.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/batch_norm/slope_internal.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/norms.h>

namespace belfry {

namespace {

struct Layout {
  explicit Layout(const Extents& e) : channels(static_cast<std::size_t>(e.back())), count(channels ? static_cast<std::size_t>(elements(e)) / channels : 0) {}
  std::size_t channels, count;
};

void forward_reference(const Call& c) {
  Layout l(c.inputs[0].type.shape);
  double epsilon = c.attributes.real("epsilon"), n = static_cast<double>(l.count);
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    for (std::size_t k = 0; k < l.channels; ++k) {
      double mean = 0, variance = 0;
      for (std::size_t i = 0; i < l.count; ++i) mean += static_cast<double>(x[i * l.channels + k]) / n;
      for (std::size_t i = 0; i < l.count; ++i) variance += std::pow(static_cast<double>(x[i * l.channels + k]) - mean, 2) / n;
      double scale = channel<T>(c.inputs[1], k, 1) / std::sqrt(variance + epsilon);
      for (std::size_t i = 0; i < l.count; ++i)
        c.outputs[0].as<T>()[i * l.channels + k] = static_cast<T>((static_cast<double>(x[i * l.channels + k]) - mean) * scale + channel<T>(c.inputs[2], k, 0));
      c.outputs[1].as<T>()[k] = static_cast<T>(mean);
      c.outputs[2].as<T>()[k] = static_cast<T>(variance);
      if (c.outputs[3].data) c.outputs[3].as<T>()[k] = static_cast<T>(variance * (n / std::max(n - 1, 1.0)));
    }
  });
}

void gradient_reference(const Call& c) {
  Layout l(c.inputs[0].type.shape);
  const Slope slope = slope_of(c.attributes);
  double epsilon = c.attributes.real("epsilon"), n = static_cast<double>(l.count);
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>(), mean = c.inputs[3].as<T>(), variance = c.inputs[4].as<T>(), given = c.inputs[5].as<T>();
    for (std::size_t k = 0; k < l.channels; ++k) {
      double inverse = 1 / std::sqrt(static_cast<double>(variance[k]) + epsilon), gamma = channel<T>(c.inputs[1], k, 1), beta = channel<T>(c.inputs[2], k, 0), dgamma = 0, dbeta = 0;
      auto normal = [&](std::size_t i) { return (static_cast<double>(x[i * l.channels + k]) - static_cast<double>(mean[k])) * inverse; };
      auto dy = [&](std::size_t i) { return passes(slope, normal(i) * gamma + beta) ? static_cast<double>(given[i * l.channels + k]) : 0; };
      for (std::size_t i = 0; i < l.count; ++i) {
        dgamma += dy(i) * normal(i);
        dbeta += dy(i);
      }
      for (std::size_t i = 0; i < l.count; ++i)
        c.outputs[0].as<T>()[i * l.channels + k] = static_cast<T>(gamma * inverse * (dy(i) - dbeta / n - normal(i) * dgamma / n));
      if (c.outputs[1].data) c.outputs[1].as<T>()[k] = static_cast<T>(dgamma);
      if (c.outputs[2].data) c.outputs[2].as<T>()[k] = static_cast<T>(dbeta);
    }
  });
}

std::vector<TensorType> infer_forward(InferContext& c) {
  c.need_float(0);
  if (c.rank(0) < 2) c.fail("x needs a batch and a channel axis");
  TensorType channel{c.dtype(0), {c.shape(0).back()}};
  for (int i = 1; i < 6; ++i)
    if (c.has(i) && c.type(i) != channel) c.fail("gamma, beta, the bias and the running statistics must be " + to_string(channel));
  return {c.type(0), channel, channel, channel};
}

Split split_forward(const SplitContext& c) {
  int last = static_cast<int>(c.inputs[0].shape.size()) - 1;
  std::vector<SplitState> reads(c.states.size(), kReplicated);
  reads[0] = c.states[0];
  if (!c.states[0].is_rows() || c.states[0].axis == last) {
    reads[0] = kReplicated;
    return {reads, std::vector<SplitState>(4, kReplicated)};
  }
  return {reads, {c.states[0], kPerTower, kPerTower, kPerTower}};
}

/// One node: from its parts, the gradient of a per-tower mean would come out as a partial. Statistics are per tower where x is rows alone, so that without
/// rows all is read whole.
Split split_gradient(const SplitContext& c) {
  SplitState s = c.states[0];
  if (!s.is_rows() || s.axis == static_cast<int>(c.inputs[0].shape.size()) - 1) return {std::vector<SplitState>(6, kReplicated), std::vector<SplitState>(3, kReplicated)};
  auto statistic = [](SplitState m) { return m.is_per_tower() ? m : kReplicated; };
  return {{s, kReplicated, kReplicated, statistic(c.states[3]), statistic(c.states[4]), s}, {s, partial(Reduction::sum), partial(Reduction::sum)}};
}

Integers all_but_last(int rank) {
  Integers axes;
  for (int i = 0; i + 1 < rank; ++i) axes.push_back(i);
  return axes;
}

/// How many elements a channel has, over the whole batch.
Value channel_count(Graph& graph, Value x) { return row_count(graph, Shape(x.shape().begin(), x.shape().end() - 1), x.dtype()); }

/// Plans are made after ops were written out: by this one, inference from a plan of training still finds the running statistics.
Value batch_statistic(Value batch, Value running) { return emit("batch_statistic", {batch, running}, {}, {}); }

/// That of x, which may lack a bias that the running mean has.
Value running_mean(GradientContext& g) { return g.count() > 5 && g.input(5) ? g.input(3) - g.input(5) : g.input(3); }

/// sync forward: row sums, centred squares, normalise. Each sum is aggregated before the next node reads it.
std::vector<Value> write_out_forward(GradientContext& g) {
  if (!g.attributes.flag("sync")) return {};
  Value x = g.input(0), count = channel_count(g.graph, x);
  ReduceOptions rows{all_but_last(x.rank())};
  Value mean = batch_statistic(reduce_sum(x, rows) / count, running_mean(g));
  Value centred = x - mean;
  Value variance = batch_statistic(reduce_sum(square(centred), rows) / count, g.input(4));
  Value y = centred / sqrt(variance + g.attributes.real("epsilon"));
  if (g.input(1)) y = y * g.input(1);
  if (g.input(2)) y = y + g.input(2);
  return {y, mean, variance, variance * (count / maximum(count - 1, constant_like(count, 1)))};
}

/// sync gradient: the two row sums are dgamma and dbeta; then dx.
std::vector<Value> write_out_gradient(GradientContext& g) {
  if (!g.attributes.flag("sync")) return {};
  Value x = g.input(0), gamma = g.input(1), dy = g.input(5), count = channel_count(g.graph, x);
  ReduceOptions rows{all_but_last(x.rank())};
  Value deviation = sqrt(g.input(4) + g.attributes.real("epsilon"));
  Value normal = (x - g.input(3)) / deviation;
  Value dgamma = reduce_sum(dy * normal, rows), dbeta = reduce_sum(dy, rows);
  return {(dy - (dbeta + normal * dgamma) / count) * (gamma ? gamma / deviation : 1 / deviation), dgamma, dbeta};
}

double flops(std::span<const LocalType> in, std::span<const LocalType>, const Attributes&) { return 8.0 * static_cast<double>(in[0].elements()); }

}  // namespace

std::vector<OpDef> batch_norm_defs() {
  std::vector<AttributeDef> attributes = {AttributeDef("epsilon", 1e-3).between(0, 1), {"sync", false}};
  InputDef bias = wide_input(shape_only("bias"));
  bias.optional = true;
  std::vector<OpDef> out;
  out.push_back({.name = "batch_norm",
                 .attributes = attributes,
                 .inputs = {"x", wide_input(optional_input("gamma")), wide_input(optional_input("beta")), wide_input(shape_only("running_mean")), wide_input(shape_only("running_variance")), bias},
                 .outputs = {"y", wide_output("mean"), wide_output("variance"), wide_output(optional_output("sample_variance"))},
                 .infer = infer_forward,
                 .reference = forward_reference,
                 .gradient = [](GradientContext& g) {
                   Value d = emit("batch_norm_gradient", {g.input(0), g.input(1), Value{}, g.output(1), g.output(2), g.output_gradient()},
                                  {{"epsilon", g.attributes.real("epsilon")}, {"sync", g.attributes.flag("sync")}}, {});
                   std::vector<Value> out = {d, d.output(1), d.output(2)};
                   out.resize(static_cast<std::size_t>(g.count()));
                   return out;
                 },
                 .split = split_forward,
                 .flops = flops,
                 .write_out = write_out_forward,
                 .inference = [](GradientContext& g) {
                   Value mean = running_mean(g), y = batch_norm_inference(g.input(0), g.input(1), g.input(2), mean, g.input(4), g.attributes.real("epsilon"));
                   return std::vector<Value>{y, mean, g.input(4), g.input(4)};
                 },
                 .precision = Precision::follow});
  attributes.push_back(AttributeDef(kActivation, "none").one_of({"none", "relu", "relu6"}));
  out.push_back({.name = "batch_norm_gradient",
                 .version = 2,
                 .attributes = attributes,
                 .inputs = {"x", wide_input(optional_input("gamma")), wide_input(optional_input("beta")), wide_input("mean"), wide_input("variance"), "dy"},
                 .outputs = {"dx", wide_output("dgamma"), wide_output("dbeta")},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   if (c.rank(0) < 2) c.fail("x needs a batch and a channel axis");
                   if (c.type(5) != c.type(0)) c.fail("dy must have the type of x");
                   TensorType channel{c.dtype(0), {c.shape(0).back()}};
                   for (int i = 1; i < 5; ++i)
                     if (c.has(i) && c.type(i) != channel) c.fail("gamma, beta, mean and variance must be " + to_string(channel));
                   if (c.attributes.flag("sync") && c.attributes.text(kActivation) != "none") c.fail("sync and an activation behind the norm do not go together");
                   return std::vector<TensorType>{c.type(0), c.type(3), c.type(3)};
                 },
                 .reference = gradient_reference,
                 .gradient = no_gradient("second derivatives of batch norm are in no net here"),
                 .split = split_gradient,
                 .flops = flops,
                 .write_out = write_out_gradient,
                 .precision = Precision::follow});
  out.push_back({.name = "batch_statistic",
                 .inputs = {"batch", shape_only("running")},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   if (c.type(1) != c.type(0)) c.fail("running must have the type of batch, " + to_string(c.type(0)));
                   return std::vector<TensorType>{c.type(0)};
                 },
                 .reference = [](const Call& c) {
                   if (c.outputs[0].type.elements()) std::memmove(c.outputs[0].data, c.inputs[0].data, static_cast<std::size_t>(c.outputs[0].type.bytes()));
                 },
                 .gradient = [](GradientContext& g) { return std::vector<Value>{g.output_gradient(), {}}; },
                 .split = row_by_row(),
                 .inference = [](GradientContext& g) { return std::vector<Value>{g.input(1)}; },
                 .in_place = {{0, 0}},
                 .exact = true});
  return out;
}

NodeId norm_of(const Graph& g, NodeId gradient) {
  const Node& n = g.node(gradient);
  if (n.op->name != "batch_norm_gradient") return -1;
  const NodeId norm = n.inputs[3].node;
  const Node& m = g.node(norm);
  return m.op->name == "batch_norm" && n.inputs[0] == m.inputs[0] && n.inputs[3] == ValueId{norm, 1} && n.inputs[4] == ValueId{norm, 2} ? norm : -1;
}

Value batch_norm(Value x, Value gamma, Value beta, Value running_mean, Value running_variance, const BatchNormOptions& o, SourceLine at) {
  return emit("batch_norm", {x, gamma, beta, running_mean, running_variance}, {{"epsilon", o.epsilon}, {"sync", o.sync}}, at);
}

ChannelScale batch_norm_scale(Value gamma, Value beta, Value mean, Value variance, double epsilon) {
  Value deviation = sqrt(variance + epsilon), scale = gamma ? gamma / deviation : 1 / deviation;
  return {scale, beta ? beta - mean * scale : -(mean * scale)};
}

Value batch_norm_inference(Value x, Value gamma, Value beta, Value mean, Value variance, double epsilon, SourceLine at) {
  SourceGuard guard(graph_of(x, "batch_norm_inference", at), at);
  const ChannelScale c = batch_norm_scale(gamma, beta, mean, variance, epsilon);
  return x * c.scale + c.shift;
}

}  // namespace belfry
