#include <belfry/ops/clip_norm/clip_norm.h>

#include <fmt/format.h>

#include <belfry/ops/build.h>

namespace belfry {

namespace {

/// limit/max(norm, limit).
Value factor(Value norm, double limit) {
  if (!(limit > 0)) throw UserError(fmt::format("a norm's limit is {}; it must be positive", limit));
  return limit / maximum(norm, constant_like(norm, limit));
}

}  // namespace

Value global_norm(const std::vector<Value>& values, SourceLine at) {
  if (values.empty()) throw UserError("a norm of nothing");
  SourceGuard guard(*values[0].graph, at);
  std::vector<Value> squares;
  for (Value v : values) {
    if (v.dtype() != values[0].dtype())
      throw UserError(fmt::format("a global norm needs values of one dtype, but '{}' is {} and '{}' {}", values[0].name(), name_of(values[0].dtype()), v.name(), name_of(v.dtype())));
    squares.push_back(reduce_sum(square(v)));
  }
  return sqrt(add_n(squares));
}

Value clip_by_norm(Value x, double limit, SourceLine at) {
  SourceGuard guard(*x.graph, at);
  return x * factor(sqrt(reduce_sum(square(x))), limit);
}

Value clip_by_average_norm(Value x, double limit, SourceLine at) {
  SourceGuard guard(*x.graph, at);
  return x * factor(sqrt(reduce_sum(square(x))) / row_count(*x.graph, x.shape(), x.dtype()), limit);
}

std::vector<Value> clip_by_global_norm(const std::vector<Value>& values, double limit, SourceLine at) {
  Value norm = global_norm(values, at);
  SourceGuard guard(*norm.graph, at);
  Value by = factor(norm, limit);
  std::vector<Value> out;
  for (Value v : values) out.push_back(v * by);
  return out;
}

}  // namespace belfry
