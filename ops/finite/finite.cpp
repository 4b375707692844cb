#include <belfry/ops/finite/finite.h>

#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>

namespace belfry {

Value all_finite(Value x, SourceLine at) {
  SourceGuard guard(graph_of(x, "all_finite", at), at);
  // x·0 is 0 where x is finite and NaN elsewhere; one NaN makes the sum one.
  Value sum = reduce_sum(x * 0.0);
  return equal(sum, constant_like(sum, 0));
}

Value all_of(const std::vector<Value>& conditions, SourceLine at) {
  if (conditions.empty()) throw UserError("all_of needs a condition");
  SourceGuard guard(graph_of(conditions[0], "all_of", at), at);
  Value out = conditions[0];
  for (std::size_t i = 1; i < conditions.size(); ++i) out = where(out, conditions[i], out);
  return out;
}

}  // namespace belfry
