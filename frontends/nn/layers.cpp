#include <belfry/frontends/nn/layers.h>

#include <belfry/frontends/nn/layer_support_internal.h>

namespace belfry {

Value activate(Value x, Activation activation) {
  switch (activation) {
    case Activation::relu: return relu(x, {});
    case Activation::tanh: return tanh(x, {});
    case Activation::sigmoid: return sigmoid(x, {});
    case Activation::softmax: return softmax(x, -1, {});
    case Activation::relu6: return relu6(x, {});
    case Activation::softplus: return softplus(x, {});
    case Activation::elu: return elu(x, 1, {});
    case Activation::gelu: return gelu(x, false, {});
    case Activation::silu: return silu(x, {});
    case Activation::none: break;
  }
  return x;
}

namespace nn {

namespace {

/// A layer object outlives graphs, and another may lie where one was: the kernel counts only where its node bears its name.
void need_own_graph(const char* layer, const Graph& g, Value kernel, const std::string& scope) {
  const bool spent = !g.shared_ops();  // its Values say so themselves
  if (!kernel || (kernel.graph == &g && (spent || (kernel.id.node < g.size() && g.node(kernel.id.node).name == scope + "/kernel")))) return;
  throw UserError(fmt::format("[{}] the layer '{}' has its variables in another graph than '{}': make a layer object for each graph", layer, scope, g.name));
}

Value with_bias(Value y, Value bias) { return bias ? y.graph->add("add", {y, bias}, {}, "bias_add") : y; }

}  // namespace

Value Dense::operator()(Value x, SourceLine at) {
  need_size("dense", "units", options_.units);
  Graph& g = graph_of(x, "dense", at);
  SourceGuard line(g, at);
  need_own_graph("dense", g, kernel_, scope_);
  if (scope_.empty()) scope_ = g.free_scope(options_.name);
  CursorGuard guard = enter(g, scope_);
  if (!kernel_) {
    std::int64_t in = fixed_size("dense", x, x.rank() - 1);
    kernel_ = parameter(g, "kernel", {in, options_.units}, x.dtype(), options_.kernel_init, options_.trainable);
    if (options_.bias) bias_ = parameter(g, "bias", {options_.units}, x.dtype(), options_.bias_init, options_.trainable);
    return activate(with_bias(g.add("matmul", {x, kernel_}, {}, "matmul"), bias_), options_.activation);
  }
  Value y = matmul(x, kernel_);
  return activate(bias_ ? y + bias_ : y, options_.activation);
}

Value Conv2d::operator()(Value x, SourceLine at) {
  need_size("conv2d", "filters", options_.filters);
  need_size("conv2d", "kernel", std::min(options_.kernel.height, options_.kernel.width));
  Graph& g = graph_of(x, "conv2d", at);
  SourceGuard line(g, at);
  need_own_graph("conv2d", g, kernel_, scope_);
  if (scope_.empty()) scope_ = g.free_scope(options_.name);
  CursorGuard guard = enter(g, scope_);
  Attributes attributes = {{"strides", Integers{options_.stride.height, options_.stride.width}}, {"padding", options_.padding}, {"dilations", Integers{options_.dilation.height, options_.dilation.width}}, {"groups", options_.groups}, {"pads", options_.pads}};
  if (!kernel_) {
    std::int64_t in = fixed_size("conv2d", x, 3);
    need_size("conv2d", "groups", options_.groups);
    if (in % options_.groups || options_.filters % options_.groups) throw UserError(fmt::format("[conv2d] {} channels and {} filters cannot be cut into {} groups", in, options_.filters, options_.groups));
    kernel_ = parameter(g, "kernel", {options_.kernel.height, options_.kernel.width, in / options_.groups, options_.filters}, x.dtype(), options_.kernel_init, options_.trainable);
    if (options_.bias) bias_ = parameter(g, "bias", {options_.filters}, x.dtype(), options_.bias_init, options_.trainable);
    return activate(with_bias(g.add("conv2d", {x, kernel_}, attributes, "conv"), bias_), options_.activation);
  }
  Value y = g.add("conv2d", {x, kernel_}, attributes);
  return activate(bias_ ? y + bias_ : y, options_.activation);
}

Value dense(Value x, const DenseOptions& options, SourceLine at) { return Dense(options)(x, at); }
Value conv2d(Value x, const Conv2dOptions& options, SourceLine at) { return Conv2d(options)(x, at); }

Value depthwise_conv2d(Value x, const DepthwiseConv2dOptions& o, SourceLine at) {
  need_size("depthwise_conv2d", "kernel", std::min(o.kernel.height, o.kernel.width));
  need_size("depthwise_conv2d", "multiplier", o.multiplier);
  Graph& g = graph_of(x, "depthwise_conv2d", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  std::int64_t in = fixed_size("depthwise_conv2d", x, 3);
  Value kernel = parameter(g, "depthwise_kernel", {o.kernel.height, o.kernel.width, in, o.multiplier}, x.dtype(), o.kernel_init, o.trainable);
  Value bias = o.bias ? parameter(g, "bias", {in * o.multiplier}, x.dtype(), o.bias_init, o.trainable) : Value{};
  return activate(with_bias(belfry::depthwise_conv2d(x, kernel, {.strides = {o.stride.height, o.stride.width}, .padding = o.padding, .pads = o.pads}), bias), o.activation);
}

Value batch_norm(Value x, const BatchNormOptions& o, SourceLine at) {
  Graph& g = graph_of(x, "batch_norm", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Dim channels = fixed_size("batch_norm", x, x.rank() - 1);
  auto channel = [&](const char* name, const char* init, bool trainable) { return parameter(g, name, {channels}, x.dtype(), init, trainable); };
  Value gamma = o.scale ? channel("gamma", "ones", o.trainable) : Value{}, beta = o.center ? channel("beta", "zeros", o.trainable) : Value{};
  Value mean = channel("moving_mean", "zeros", false), variance = channel("moving_variance", "ones", false);
  if (!o.trainable) return batch_norm_inference(x, gamma, beta, mean, variance, o.epsilon);
  Value y = belfry::batch_norm(x, gamma, beta, mean, variance, {.epsilon = o.epsilon, .sync = o.sync});
  for (auto [running, k] : {std::pair{mean, 1}, {variance, o.unbiased ? 3 : 2}}) {
    Cursor before = g.cursor;
    g.cursor.of = running.id.node;
    g.cursor.role = Role::update;
    g.updates[running.id.node] = (running * o.momentum + tower_mean(y.output(k)) * (1 - o.momentum)).id;
    g.cursor = before;
  }
  return y;
}

Value dropout(Value x, const DropoutOptions& o, SourceLine at) {
  Graph& g = graph_of(x, "dropout", at);
  SourceGuard line(g, at);
  std::string scope = g.free_scope(o.name);
  Value seed = seed_of(g), step = step_of(g);
  CursorGuard guard = enter(g, "");
  return belfry::dropout(x, seed, step, o.rate, scope);
}

Value embedding(Value ids, const EmbeddingOptions& o, SourceLine at) {
  need_size("embedding", "rows", o.rows);
  need_size("embedding", "size", o.size);
  Graph& g = graph_of(ids, "embedding", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Value table = variable(g, "table", {o.rows, o.size}, {.init = o.init, .init_value = o.init_value});
  return gather(table, ids);
}

}  // namespace nn
}  // namespace belfry
