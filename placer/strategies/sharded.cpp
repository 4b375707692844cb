#include <algorithm>
#include <vector>

#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/strategies/spread_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division Sharded::divide(const Graph&, const Cluster&) const {
  return one_per_device(devices, towers, combine, threads, reduction, collectives);
}

Rules Sharded::assign(const TowerGraph& tg, const Cluster& cluster) const {
  if (reduction == Reduce::to_one) throw UserError("[sharded] each device adds its range: reduction can be tree, hierarchical or ring");
  if (reduction == Reduce::hierarchical) leaders_of(cluster, devices);  // there must be some
  Rules out = {{"tower_*/**", devices, "a tower per device"}};
  std::vector<bool> ranged(tg.nodes.size());
  for (std::size_t i = 0; i < tg.nodes.size(); ++i) {
    const PlanNode& n = tg.nodes[i];
    const Node& user = tg.graph->node(n.user);
    bool slot = n.scope == Scope::state && user.of >= 0;
    bool follows = n.op != kFetch && n.op != kAggregate && std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueIndex v) { return v >= 0 && ranged[static_cast<std::size_t>(tg.value(v).maker)]; });
    if ((!slot && !follows && n.op != kAggregate) || !objection_to_ranges(tg, n, devices.size()).empty()) continue;
    ranged[i] = true;
    if (adds_towers(n) && reduction != Reduce::tree) {
      const bool ring = reduction == Reduce::ring;
      out.push_back({n.name, devices, ring ? "each device adds its range in the order of the ring: the bits are not those of the tree" : "each device adds its range of its link groups' sums, along the tree", true, ring ? SumWay::ring : SumWay::groups});
      continue;
    }
    out.push_back({n.name, devices, slot ? "each device has its range of the slots" : follows ? "each device updates its range" : "each device adds its range", true});
  }
  out.push_back({"**", devices, "on every device"});
  return out;
}

}  // namespace belfry
