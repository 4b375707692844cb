#include <belfry/graph/plan/collectives.h>

#include <algorithm>
#include <map>
#include <set>

#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// How many parts of what a sum joins each device has.
std::map<int, int> parts_of(const PlacedGraph& plan, const PlanNode& n) {
  const PlanNode& m = plan.maker(n.inputs[0]);
  std::map<int, int> out;
  if (m.scope == Scope::tower) {
    for (int t = 0; t < plan.present(); ++t)
      if (int d = plan.device_of(m, t); d >= 0) ++out[d];
  } else if (m.scope == Scope::device && m.owners >= 0) {
    for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers)) ++out[p.device];
  }
  return out;
}

/// A communicator has one rank a GPU.
bool are_gpus_of_their_own(const PlacedGraph& plan, const DeviceList& holders) {
  std::set<DeviceId> gpus;
  for (int d : holders) {
    const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(d)].id;
    if (id.kind == "gpu") gpus.insert(id.whole());
  }
  return gpus.size() == holders.size() && gpus.size() > 1;
}

}  // namespace

std::string kernel_of_moves(const PlacedGraph& plan, const PlanNode& n) {
  const bool sums = is_op(n, kAggregate) && n.attributes.text("how") == "sum", gathers = is_op(n, kAllGather) && joins_ranges(plan, n);
  if (plan.placement.collectives != Collectives::fastest || n.sum != SumWay::direct || (!sums && !gathers) || !are_gpus_of_their_own(plan, n.holders)) return n.op;
  if (gathers) return plan.maker(n.inputs[0]).holders == n.holders ? kNccl : n.op;
  const std::map<int, int> parts = parts_of(plan, n);
  const bool all = parts.size() == n.holders.size() && std::all_of(n.holders.begin(), n.holders.end(), [&](int d) { return parts.contains(d); });
  const bool once = std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.second == 1; });
  return all && (once || !n.ranged) && plan.value(n.inputs[0]).type.dtype != DType::boolean ? kNccl : n.op;
}

}  // namespace belfry
