#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division Mirrored::divide(const Graph&, const Cluster&) const {
  return {towers ? towers : static_cast<int>(devices.size()), combine, threads, PhaseOrder::by_tower, 0, collectives};
}

Rules Mirrored::assign(const TowerGraph& tg, const Cluster&) const {
  Rules out = {{"tower_*/**", devices, "a tower per device"}};
  if (devices.size() > 2)  // two exchange as much either way
    for (const PlanNode& n : tg.nodes)
      if (n.op == kAggregate && objection_to_ranges(tg, n, devices.size()).empty()) out.push_back({n.name, devices, "each device adds its range", true});
  out.push_back({"**", devices, "mirrored on every device"});
  return out;
}

}  // namespace belfry
