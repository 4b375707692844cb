#include <belfry/placer/scorer.h>

#include <limits>
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
    double seconds(double limit = std::numeric_limits<double>::infinity()) { return forecaster.seconds(values, placer.instances(), placer.readers(), limit); }
  };
  std::shared_ptr<const Graph> graph;
  Cluster cluster;
  CostTable costs;
  PlaceOptions options;
  std::map<std::tuple<int, std::int64_t, Combine, int, std::vector<std::string>>, Base> bases = {};

  Base& base(const Placement& p) {
    const std::tuple key(p.towers, p.batch, p.combine, p.threads, p.recompute);
    if (auto at = bases.find(key); at != bases.end()) return at->second;
    TowerGraph towers = expand_for(graph, {p.towers, p.combine, p.threads, p.order}, p.batch, options);
    recompute(towers, p.recompute);
    return bases.try_emplace(key, std::move(towers), *this).first->second;
  }
};

Scorer::Scorer(std::shared_ptr<const Graph> graph, Cluster cluster, CostTable costs, PlaceOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::move(graph), std::move(cluster), std::move(costs), std::move(options)})) {}

Scorer::~Scorer() = default;
Scorer::Scorer(Scorer&&) noexcept = default;

const Cluster& Scorer::cluster() const { return parts_->cluster; }

Score Scorer::operator()(const Placement& p, std::size_t must_decide, double limit) {
  Parts::Base& b = parts_->base(p);
  const PlacedGraph& plan = b.placer.place(p, must_decide);
  Score out{b.seconds(limit), {}, over_memory(plan)};
  for (const DeviceBytes& bytes : device_bytes(plan)) out.peak.push_back(bytes.total());
  return out;
}

double Scorer::seconds(const Placement& p, std::size_t must_decide) {
  Parts::Base& b = parts_->base(p);
  b.placer.place_for_time(p, must_decide);
  return b.seconds();
}

Score forecast(std::shared_ptr<const Graph> graph, const Cluster& cluster, const Placement& placement, const CostTable& costs, const PlaceOptions& options) {
  return Scorer(std::move(graph), cluster, costs, options)(placement, options.must_decide);
}

}  // namespace belfry
