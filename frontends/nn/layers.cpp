#include <belfry/frontends/nn/layers.h>

#include <fmt/format.h>

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

/// The layer's own scope, put back when it goes.
CursorGuard enter(Graph& g, const std::string& scope) {
  CursorGuard guard(g, g.cursor);
  g.cursor.scope = scope;
  return guard;
}

void need_size(const char* layer, const char* what, std::int64_t size) {
  if (size < 1) throw UserError(fmt::format("[{}] {} is {}; it must be at least 1", layer, what, size));
}

std::int64_t fixed_size(const char* layer, Value x, int axis) {
  if (axis >= x.rank()) throw UserError(fmt::format("[{}] x needs at least {} axes, not the shape {}", layer, axis + 1, to_string(std::span(x.shape()))));
  const Dim& d = x.shape()[static_cast<std::size_t>(axis)];
  if (d.symbolic()) throw UserError(fmt::format("[{}] axis {} of {} must have a fixed size", layer, axis, to_string(std::span(x.shape()))));
  return d.factor;
}

Value parameter(Graph& g, const char* name, Shape shape, DType dtype, const Init& init, bool trainable) {
  return variable(g, name, std::move(shape), {.dtype = dtype, .init = init.kind, .init_value = init.value, .trainable = trainable});
}

Value with_bias(Value y, Value bias) { return bias ? y.graph->add("add", {y, bias}, {}, "bias_add") : y; }

}  // namespace

Value Dense::operator()(Value x, SourceLine at) {
  need_size("dense", "units", options_.units);
  Graph& g = *x.graph;
  SourceGuard line(g, at);
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
  Graph& g = *x.graph;
  SourceGuard line(g, at);
  if (scope_.empty()) scope_ = g.free_scope(options_.name);
  CursorGuard guard = enter(g, scope_);
  Attributes attributes = {{"strides", Integers{options_.stride.height, options_.stride.width}}, {"padding", options_.padding}};
  if (!kernel_) {
    std::int64_t in = fixed_size("conv2d", x, 3);
    kernel_ = parameter(g, "kernel", {options_.kernel.height, options_.kernel.width, in, options_.filters}, x.dtype(), options_.kernel_init, options_.trainable);
    if (options_.bias) bias_ = parameter(g, "bias", {options_.filters}, x.dtype(), options_.bias_init, options_.trainable);
    return activate(with_bias(g.add("conv2d", {x, kernel_}, attributes, "conv"), bias_), options_.activation);
  }
  Value y = g.add("conv2d", {x, kernel_}, attributes);
  return activate(bias_ ? y + bias_ : y, options_.activation);
}

Value dense(Value x, const DenseOptions& options, SourceLine at) { return Dense(options)(x, at); }
Value conv2d(Value x, const Conv2dOptions& options, SourceLine at) { return Conv2d(options)(x, at); }

Value batch_norm(Value x, const BatchNormOptions& o, SourceLine at) {
  Graph& g = *x.graph;
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Dim channels = fixed_size("batch_norm", x, x.rank() - 1);
  auto parameter = [&](const char* name, const char* init, bool trainable) { return variable(g, name, {channels}, {.dtype = x.dtype(), .init = init, .trainable = trainable}); };
  Value gamma = parameter("gamma", "ones", true), beta = parameter("beta", "zeros", true);
  Value mean = parameter("moving_mean", "zeros", false), variance = parameter("moving_variance", "ones", false);
  Value y = belfry::batch_norm(x, gamma, beta, mean, variance, {.epsilon = o.epsilon, .sync = o.sync});
  for (auto [running, k] : {std::pair{mean, 1}, {variance, 2}}) {
    Cursor before = g.cursor;
    g.cursor.of = running.id.node;
    g.cursor.role = Role::update;
    g.updates[running.id.node] = (running * o.momentum + tower_mean(y.output(k)) * (1 - o.momentum)).id;
    g.cursor = before;
  }
  return y;
}

Value dropout(Value x, const DropoutOptions& o, SourceLine at) {
  Graph& g = *x.graph;
  SourceGuard line(g, at);
  std::string scope = g.free_scope(o.name);
  Value seed = seed_of(g), step = step_of(g);
  CursorGuard guard = enter(g, "");
  return belfry::dropout(x, seed, step, o.rate, scope);
}

Value embedding(Value ids, const EmbeddingOptions& o, SourceLine at) {
  need_size("embedding", "rows", o.rows);
  need_size("embedding", "size", o.size);
  Graph& g = *ids.graph;
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Value table = variable(g, "table", {o.rows, o.size}, {.init = o.init, .init_value = o.init_value});
  return gather(table, ids);
}

}  // namespace nn
}  // namespace belfry
