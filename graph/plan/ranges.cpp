#include <belfry/graph/plan/ranges.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::int64_t elements_of(const TowerGraph& graph, ValueIndex v) { return local_type(graph.value(v), graph.share(-1)).elements(); }

}  // namespace

Range element_range(std::int64_t elements, std::size_t holders, std::size_t number) {
  Range units = share_of((elements + kRangeUnit - 1) / kRangeUnit, static_cast<std::int64_t>(holders), static_cast<std::int64_t>(number));
  return {std::min(elements, units.first * kRangeUnit), std::min(elements, units.past * kRangeUnit)};
}

Range range_on(const PlacedGraph& plan, const PlanNode& n, ValueIndex v, int device) {
  const std::int64_t all = elements_of(plan, v);
  if (!n.ranged || all != elements_of(plan, n.outputs[0])) return {0, all};
  const std::vector<int>& holders = n.holders;
  auto at = std::find(holders.begin(), holders.end(), device);
  if (at == holders.end()) throw UserError(fmt::format("unbound: '{}' has no range on {}", n.name, to_string(plan.cluster.devices[static_cast<std::size_t>(device)].id)));
  return element_range(all, holders.size(), static_cast<std::size_t>(at - holders.begin()));
}

LocalType type_on(const PlacedGraph& plan, const PlanNode& n, ValueIndex v, int device) {
  LocalType out = local_type(plan.value(v), plan.share(-1));
  if (!n.ranged) return out;
  Range r = range_on(plan, n, v, device);
  if (r.past - r.first != out.elements()) out.shape = {r.past - r.first};
  return out;
}

bool joins_ranges(const PlacedGraph& plan, const PlanNode& n) { return (is_op(n, kAllGather) || is_op(n, kFetch)) && plan.maker(n.inputs[0]).ranged; }

std::string objection_to_ranges(const TowerGraph& graph, const PlanNode& n, std::size_t devices) {
  const std::int64_t elements = elements_of(graph, n.outputs[0]);
  if (n.scope != Scope::shared && n.scope != Scope::state) return "runs in the towers";
  if (devices < 2) return "is on one device";
  if (elements < static_cast<std::int64_t>(devices) * kRangeUnit) return fmt::format("has {} elements, and {} devices share no fewer than {}", elements, devices, devices * kRangeUnit);
  if (n.scope == Scope::state || is_op(n, kStore)) return "";
  if (is_op(n, kAggregate)) return n.attributes.text("how") == "sum" || n.attributes.text("how") == "max" || n.attributes.text("how") == "mean" ? "" : "computes nothing by element";
  if (n.def ? !n.def->on_ranges() : !is_tree(graph, n)) return "does not compute by element";
  for (ValueIndex v : n.outputs)
    if (graph.value(v).read && elements_of(graph, v) != elements) return "makes values of several sizes";
  for (ValueIndex v : values_read(n))
    if (graph.maker(v).op == kInput) return fmt::format("reads the feed '{}'", graph.value(v).name);
    else if (std::int64_t e = elements_of(graph, v); e != elements && e != 1) return fmt::format("reads '{}', which has {} elements for {}", graph.value(v).name, e, elements);
  return "";
}

}  // namespace belfry
