#include <belfry/graph/plan/small_steps.h>

#include <algorithm>
#include <utility>

#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Per node whether what it makes needs nothing but what its devices have before the step.
std::vector<bool> made_of_state(const PlacedGraph& plan) {
  std::vector<bool> out(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    out[i] = (n.scope == Scope::state || n.scope == Scope::shared) && !n.ranged && !is_op(n, kInput) && !moves_values(n);
    for_values_read(n, [&](ValueIndex v) {
      const PlanNode& m = plan.maker(v);
      auto has = [&](int device) { return std::find(m.holders.begin(), m.holders.end(), device) != m.holders.end(); };
      out[i] = out[i] && out[static_cast<std::size_t>(plan.value(v).maker)] && (m.holders == n.holders || std::all_of(n.holders.begin(), n.holders.end(), has));
    });
  }
  return out;
}

/// Elements by themselves, or as they are.
bool is_light(const TowerGraph& plan, const PlanNode& n) { return is_tree(plan, n) || (n.def && !n.inputs.empty() && (n.def->elementwise() || (n.def->stores && !n.def->in_place.empty()))); }

/// The same ops on the same types, of elements or of one for all.
bool alike(const PlacedGraph& plan, const PlanNode& a, const PlanNode& b) {
  auto same_op = [&](const Member& x, const Member& y) { return plan.graph->node(x.node).op == plan.graph->node(y.node).op; };
  auto same_type = [&](ValueIndex x, ValueIndex y) {
    if (x < 0 || y < 0) return x < 0 && y < 0;
    auto whole = [&](const PlanNode& n, ValueIndex v) { return local_type(plan.value(v), plan.share(-1)).elements() == local_type(plan.value(n.outputs[0]), plan.share(-1)).elements(); };
    return plan.value(x).type.dtype == plan.value(y).type.dtype && whole(a, x) == whole(b, y);
  };
  return a.op == b.op && std::equal(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(), same_op) &&
         std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), same_type) && std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), same_type) && a.holders == b.holders;
}

}  // namespace

std::vector<Small> small_steps(const PlacedGraph& plan) {
  std::vector<Small> out(plan.nodes.size(), Small::no);
  auto on_gpu = [&](int device) { return plan.cluster.devices[static_cast<std::size_t>(device)].id.kind == "gpu"; };
  if (std::none_of(plan.cluster.devices.begin(), plan.cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu"; })) return out;
  std::vector<bool> updates(plan.nodes.size());
  const std::vector<bool> of_state = made_of_state(plan);
  for (auto [variable, u] : plan.updates) updates[static_cast<std::size_t>(plan.value(u).maker)] = true;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    if (n.scope != Scope::shared || n.once || n.ranged || is_op(n, kInput) || n.holders.empty() || !std::all_of(n.holders.begin(), n.holders.end(), on_gpu)) continue;
    const bool update = n.def ? updates[i] || n.def->by_element : updates[i] && is_op(n, kFused);  // where a gate is, it is what reads the optimiser's output
    if (!update && !(of_state[i] && is_light(plan, n))) continue;
    auto small = [&](ValueIndex v) { return local_bytes(plan.value(v), plan.share(-1)) <= (update ? kSmallUpdate : kSmallValue); };
    bool all = std::all_of(n.outputs.begin(), n.outputs.end(), small);
    for_values_read(n, [&](ValueIndex v) { all = all && small(v); });
    if (all) out[i] = update ? Small::update : Small::value;
  }
  return out;
}

std::vector<int> joint_steps(const PlacedGraph& plan) {
  std::vector<int> out(plan.nodes.size(), -1);
  const std::vector<Small> small = small_steps(plan);
  if (std::all_of(small.begin(), small.end(), [](Small s) { return s == Small::no; })) return out;
  std::vector<std::pair<int, int>> order;  // and node
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (plan.nodes[i].scope == Scope::shared) order.emplace_back(plan.nodes[i].order, static_cast<int>(i));
  std::sort(order.begin(), order.end());
  std::vector<std::pair<int, const PlanNode*>> open;  // number, and one of them
  int count = 0;
  for (auto [at, i] : order) {
    const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
    for_values_read(n, [&](ValueIndex v) {
      const int read = out[static_cast<std::size_t>(plan.value(v).maker)];
      if (read >= 0) std::erase_if(open, [&](const auto& group) { return group.first == read; });
    });
    if (small[static_cast<std::size_t>(i)] == Small::no) continue;
    auto group = std::find_if(open.begin(), open.end(), [&](const auto& g) { return alike(plan, *g.second, n); });
    if (group == open.end()) group = open.insert(open.end(), {count++, &n});
    out[static_cast<std::size_t>(i)] = group->first;
  }
  return out;
}

}  // namespace belfry
