// What layers share: their scope, their variables, and sizes that these need.
#pragma once

#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/nn/layers.h>
#include <belfry/ops/graph_of.h>

namespace belfry::nn {

/// The layer's own scope, put back when it goes.
inline CursorGuard enter(Graph& g, const std::string& scope) {
  CursorGuard guard(g, g.cursor);
  g.cursor.scope = scope;
  return guard;
}

inline void need_size(const char* layer, const char* what, std::int64_t size) {
  if (size < 1) throw UserError(fmt::format("[{}] {} is {}; it must be at least 1", layer, what, size));
}

inline std::int64_t fixed_size(const char* layer, Value x, int axis) {
  if (axis < 0 || axis >= x.rank()) throw UserError(fmt::format("[{}] x needs at least {} axes, not the shape {}", layer, std::max(axis, 0) + 1, to_string(std::span(x.shape()))));
  const Dim& d = x.shape()[static_cast<std::size_t>(axis)];
  if (d.symbolic()) throw UserError(fmt::format("[{}] axis {} of {} must have a fixed size", layer, axis, to_string(std::span(x.shape()))));
  return d.factor;
}

/// A float picture (batch, height, width, channels) of at least `least` pixels along each side.
inline void need_image(const char* net, Value x, std::int64_t least) {
  auto small = [&](std::size_t axis) { return x.shape()[axis].symbolic() || x.shape()[axis].factor < least; };
  if (!is_float(x.dtype()) || x.rank() != 4 || small(1) || small(2) || x.shape()[3].symbolic())
    throw UserError(fmt::format("[{0}] the picture must be f32 or f64 (batch, height, width, channels), at least {1} x {1}, not {2}", net, least, to_string(x.type())));
}

inline Value parameter(Graph& g, const char* name, Shape shape, DType dtype, const Init& init, bool trainable) {
  return variable(g, name, std::move(shape), {.dtype = dtype, .init = init.kind, .init_value = init.value, .trainable = trainable});
}

}  // namespace belfry::nn
