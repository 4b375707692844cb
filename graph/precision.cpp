#include <belfry/graph/precision.h>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

std::string_view name_of(const GraphPrecision& p) { return p.rounds ? "tf32" : name_of(p.dtype); }

GraphPrecision parse_precision(std::string_view text) {
  for (const GraphPrecision& p : {GraphPrecision(f32), tf32, GraphPrecision(bf16), GraphPrecision(f16)})
    if (text == name_of(p)) return p;
  throw UserError(fmt::format("a graph's precision is f32, tf32, bf16 or f16, not {}", text));
}

}  // namespace belfry
