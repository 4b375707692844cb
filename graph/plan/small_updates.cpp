#include <belfry/graph/plan/small_updates.h>

#include <algorithm>

#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::vector<bool> small_updates(const PlacedGraph& plan) {
  std::vector<bool> out(plan.nodes.size());
  auto on_gpu = [&](int device) { return plan.cluster.devices[static_cast<std::size_t>(device)].id.kind == "gpu"; };
  if (std::none_of(plan.cluster.devices.begin(), plan.cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; })) return out;
  for (auto [variable, u] : plan.updates) out[static_cast<std::size_t>(plan.value(u).maker)] = true;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    const bool update = n.def ? out[i] || n.def->by_element : out[i] && is_op(n, kFused);  // where a gate is, it is what reads the optimiser's output
    auto small = [&](ValueIndex v) { return local_type(plan.value(v), plan.share(-1)).bytes() <= kSmallUpdate; };
    out[i] = update && n.scope == Scope::shared && !n.ranged && !is_op(n, kInput) && !n.holders.empty() && std::all_of(n.holders.begin(), n.holders.end(), on_gpu);
    for_values_read(n, [&](ValueIndex v) { out[i] = out[i] && small(v); });
    out[i] = out[i] && std::all_of(n.outputs.begin(), n.outputs.end(), small);
  }
  return out;
}

bool alike(const PlacedGraph& plan, const PlanNode& a, const PlanNode& b) {
  auto dtype = [&](const PlanNode& n) { return plan.value(n.outputs[0]).type.dtype; };
  auto same = [&](const Member& x, const Member& y) { return plan.graph->node(x.node).op == plan.graph->node(y.node).op; };
  return a.op == b.op && dtype(a) == dtype(b) && std::equal(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(), same);
}

}  // namespace belfry
