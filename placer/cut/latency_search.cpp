#include <belfry/placer/cut/search_internal.h>

namespace belfry::cutting {

Answer least_latency(const CutProblem&, const Items&, const std::optional<Split>& known, std::int64_t&) { return {known, 0}; }

}  // namespace belfry::cutting
