#include <belfry/placer/scorer.h>

#include <map>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/recompute.h>

namespace belfry {

struct Scorer::Parts {
  /// All placements of one tower graph.
  struct Base {
    Base(TowerGraph towers, const Parts& p) : values(towers.values.size()), placer(std::move(towers), p.cluster, p.options), forecaster(placer.plan(), p.costs) {}
    std::size_t values;
    Placer placer;
    Forecaster forecaster;
  };
  std::shared_ptr<const Graph> graph;
  Cluster cluster;
  CostTable costs;
  PlaceOptions options;
  std::map<std::tuple<int, std::int64_t, Combine, int, std::vector<std::string>>, Base> bases = {};
};

Scorer::Scorer(std::shared_ptr<const Graph> graph, Cluster cluster, CostTable costs, PlaceOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::move(graph), std::move(cluster), std::move(costs), std::move(options)})) {}

Scorer::~Scorer() = default;
Scorer::Scorer(Scorer&&) noexcept = default;

const Cluster& Scorer::cluster() const { return parts_->cluster; }

Score Scorer::operator()(const Placement& p, std::size_t must_decide, double limit) {
  const std::tuple key(p.towers, p.batch, p.combine, p.threads, p.recompute);
  auto base = parts_->bases.find(key);
  if (base == parts_->bases.end()) {
    TowerGraph towers = expand_for(parts_->graph, {p.towers, p.combine, p.threads, p.order}, p.batch, parts_->options);
    recompute(towers, p.recompute);
    base = parts_->bases.try_emplace(key, std::move(towers), *parts_).first;
  }
  Parts::Base& b = base->second;
  const PlacedGraph& plan = b.placer.place(p, must_decide);
  Score out{b.forecaster.seconds(b.values, b.placer.instances(), b.placer.readers(), limit), {}, over_memory(plan)};
  for (const DeviceBytes& bytes : device_bytes(plan)) out.peak.push_back(bytes.total());
  return out;
}

Score forecast(std::shared_ptr<const Graph> graph, const Cluster& cluster, const Placement& placement, const CostTable& costs, const PlaceOptions& options) {
  return Scorer(std::move(graph), cluster, costs, options)(placement, options.must_decide);
}

}  // namespace belfry
