#include <belfry/frontends/nn/norms.h>

#include <belfry/frontends/nn/layer_support_internal.h>

namespace belfry::nn {

namespace {

/// The axes from `axis` on, whose sizes must be fixed.
Shape axes_from(const char* layer, Value x, int axis) {
  int first = from_front(axis, x.rank());
  if (first < 0) throw UserError(fmt::format("[{}] axis {} is out of range for shape {}", layer, axis, to_string(std::span(x.shape()))));
  Shape out;
  do out.push_back(fixed_size(layer, x, first));
  while (++first < x.rank());
  return out;
}

}  // namespace

Value layer_norm(Value x, const LayerNormOptions& o, SourceLine at) {
  Graph& g = graph_of(x, "layer_norm", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Shape shape = axes_from("layer_norm", x, o.axis);
  Value gamma = o.scale ? parameter(g, "gamma", shape, x.dtype(), "ones", o.trainable) : Value{}, beta = o.center ? parameter(g, "beta", shape, x.dtype(), "zeros", o.trainable) : Value{};
  return belfry::layer_norm(x, gamma, beta, {.axis = o.axis, .epsilon = o.epsilon});
}

Value rms_norm(Value x, const RmsNormOptions& o, SourceLine at) {
  Graph& g = graph_of(x, "rms_norm", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  return belfry::rms_norm(x, parameter(g, "gamma", axes_from("rms_norm", x, o.axis), x.dtype(), "ones", o.trainable), {.axis = o.axis, .epsilon = o.epsilon});
}

Value group_norm(Value x, const GroupNormOptions& o, SourceLine at) {
  Graph& g = graph_of(x, "group_norm", at);
  SourceGuard line(g, at);
  CursorGuard guard = enter(g, g.free_scope(o.name));
  Shape shape = axes_from("group_norm", x, -1);
  Value gamma = o.scale ? parameter(g, "gamma", shape, x.dtype(), "ones", o.trainable) : Value{}, beta = o.center ? parameter(g, "beta", shape, x.dtype(), "zeros", o.trainable) : Value{};
  return belfry::group_norm(x, gamma, beta, {.groups = o.groups, .epsilon = o.epsilon});
}

}  // namespace belfry::nn
