#include <belfry/ops/clip_norm/clip_norm.h>

#include <fmt/format.h>

#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>

namespace belfry {

namespace {

/// √squares, with slope 0 where they are 0.
Value root(Value squares) {
  Value zero = constant_like(squares, 0), positive = greater(squares, zero);
  return where(positive, sqrt(where(positive, squares, constant_like(squares, 1))), squares);
}

/// limit/max(norm, limit): 1 within the limit.
Value factor(const char* function, Value norm, double limit) {
  if (!(limit > 0)) throw UserError(fmt::format("[{}] the limit is {}; it must be positive", function, limit));
  return limit / maximum(norm, constant_like(norm, limit));
}

}  // namespace

Value clip_by_value(Value x, double min, double max, SourceLine at) { return clip(x, min, max, at); }

Value global_norm(const std::vector<Value>& values, SourceLine at) {
  if (values.empty()) throw UserError("[global_norm] there are no values");
  SourceGuard guard(graph_of(values[0], "global_norm", at), at);
  std::vector<Value> squares;
  for (Value v : values) {
    if (v.dtype() != values[0].dtype())
      throw UserError(fmt::format("[global_norm] '{}' is {} and '{}' {}; they need one dtype", values[0].name(), name_of(values[0].dtype()), v.name(), name_of(v.dtype())));
    squares.push_back(reduce_sum(square(v)));
  }
  return sqrt(add_n(squares));
}

Value clip_by_norm(Value x, double limit, SourceLine at) {
  SourceGuard guard(graph_of(x, "clip_by_norm", at), at);
  return x * factor("clip_by_norm", root(reduce_sum(square(x))), limit);
}

Value clip_by_norm_along(Value x, double limit, Integers axes, SourceLine at) {
  SourceGuard guard(graph_of(x, "clip_by_norm_along", at), at);
  return x * factor("clip_by_norm_along", root(reduce_sum(square(x), {.axes = std::move(axes), .keep = true})), limit);
}

Value clip_by_average_norm(Value x, double limit, SourceLine at) {
  SourceGuard guard(graph_of(x, "clip_by_average_norm", at), at);
  return x * factor("clip_by_average_norm", root(reduce_sum(square(x))) / row_count(*x.graph, x.shape(), x.dtype()), limit);
}

std::vector<Value> clip_by_global_norm(const std::vector<Value>& values, double limit, SourceLine at) {
  Value norm = global_norm(values, at);
  SourceGuard guard(graph_of(norm, "clip_by_global_norm", at), at);
  // norm − norm is 0, or NaN where the norm is not finite.
  Value by = factor("clip_by_global_norm", norm, limit) + (norm - norm);
  std::vector<Value> out;
  for (Value v : values) out.push_back(v * by);
  return out;
}

}  // namespace belfry
