#include <belfry/placer/scorer.h>

#include <map>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/recompute.h>

namespace belfry {

struct Scorer::Parts {
  std::shared_ptr<const Graph> graph;
  Cluster cluster;
  CostTable costs;
  PlaceOptions options;
  std::map<std::tuple<int, std::int64_t, Combine, int, std::vector<std::string>>, ForecastPlacer> placers = {};  // by tower graph

  ForecastPlacer& placer(const Placement& p) {
    const std::tuple key(p.towers, p.batch, p.combine, p.threads, p.recompute);
    if (auto at = placers.find(key); at != placers.end()) return at->second;
    TowerGraph towers = expand_for(graph, {p.towers, p.combine, p.threads, p.order}, p.batch, options);
    recompute(towers, options.recompute.stretches ? nodes_to_recompute(towers, options.recompute.stretches) : p.recompute);
    return placers.try_emplace(key, std::move(towers), cluster, options, costs).first->second;
  }
};

Scorer::Scorer(std::shared_ptr<const Graph> graph, Cluster cluster, CostTable costs, PlaceOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::move(graph), std::move(cluster), std::move(costs), std::move(options)})) {}

Scorer::~Scorer() = default;
Scorer::Scorer(Scorer&&) noexcept = default;

const Cluster& Scorer::cluster() const { return parts_->cluster; }

Score Scorer::operator()(const Placement& p, std::size_t must_decide, double limit) {
  ForecastPlacer& placer = parts_->placer(p);
  const PlacedGraph& plan = placer.place(p, must_decide);
  Score out{placer.seconds(limit), {}, over_memory(plan)};
  for (const DeviceBytes& bytes : device_bytes(plan)) out.peak.push_back(bytes.total());
  return out;
}

double Scorer::seconds(const Placement& p, std::size_t must_decide) {
  ForecastPlacer& placer = parts_->placer(p);
  placer.place_for_time(p, must_decide);
  return placer.seconds();
}

Score forecast(std::shared_ptr<const Graph> graph, const Cluster& cluster, const Placement& placement, const CostTable& costs, const PlaceOptions& options) {
  return Scorer(std::move(graph), cluster, costs, options)(placement, options.must_decide);
}

}  // namespace belfry
