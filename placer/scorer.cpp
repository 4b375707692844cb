#include <belfry/placer/scorer.h>

#include <algorithm>
#include <list>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/left_whole.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/recompute.h>

namespace belfry {

struct Scorer::Parts {
  std::shared_ptr<const Graph> graph;
  Cluster cluster;
  CostTable costs;
  PlaceOptions options;
  std::optional<GroupsBesideRules> groups = {};                                        // of the graph
  using Key = std::tuple<int, std::int64_t, Combine, int, std::vector<std::string>, std::size_t, std::vector<std::size_t>>;  // what decides a tower graph
  std::list<std::pair<const Key, ForecastPlacer>> placers = {};                        // the latest first

  ForecastPlacer& placer(const Placement& p, std::size_t must_decide) {
    constexpr std::size_t kKept = 16;  // a search may ask for any number of batches
    const std::size_t rules = options.recompute.stretches ? hash_of(p.rules) : 0;  // by which it is decided what is computed again
    const std::vector<std::size_t> gone = groups ? groups->giving_way(std::span(p.rules).first(std::min(must_decide, p.rules.size()))) : std::vector<std::size_t>();
    const Key key(p.towers, p.batch, p.combine, p.threads, p.recompute, rules, gone);
    const auto at = std::find_if(placers.begin(), placers.end(), [&](const auto& known) { return known.first == key; });
    if (at != placers.end()) {
      placers.splice(placers.begin(), placers, at);
      return at->second;
    }
    PlaceOptions with = options;
    if (groups) with.groups = [&](const Graph&) { return groups->without(gone); };
    TowerGraph towers = expand_for(graph, {p.towers, p.combine, p.threads, p.order}, p.batch, with);
    recompute(towers, recomputed_nodes(towers, options.recompute.stretches, p.recompute, p.rules, cluster));
    if (placers.size() >= kKept) placers.pop_back();
    placers.emplace_front(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple(std::move(towers), cluster, options, costs));
    return placers.front().second;
  }
};

Scorer::Scorer(std::shared_ptr<const Graph> graph, Cluster cluster, CostTable costs, PlaceOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::move(graph), std::move(cluster), std::move(costs), std::move(options)})) {
  if (parts_->options.groups) parts_->groups.emplace(*parts_->graph, parts_->options.groups(*parts_->graph));
}

Scorer::~Scorer() = default;
Scorer::Scorer(Scorer&&) noexcept = default;

const Cluster& Scorer::cluster() const { return parts_->cluster; }

Score Scorer::operator()(const Placement& p, std::size_t must_decide, double limit) {
  ForecastPlacer& placer = parts_->placer(p, must_decide);
  const PlacedGraph& plan = placer.place(p, must_decide);
  return {placer.seconds(limit), total_bytes(plan), over_memory(plan)};
}

double Scorer::seconds(const Placement& p, std::size_t must_decide) {
  ForecastPlacer& placer = parts_->placer(p, must_decide);
  placer.place_for_time(p, must_decide);
  return placer.seconds();
}

Score forecast(std::shared_ptr<const Graph> graph, const Cluster& cluster, const Placement& placement, const CostTable& costs, const PlaceOptions& options) {
  return Scorer(std::move(graph), cluster, costs, options)(placement, options.must_decide);
}

}  // namespace belfry
