// Finding what to spoil in a plan. What is not there is an InternalError: the damage does not apply to that plan.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>

#include "damage.h"

namespace belfry::test {

using Test = std::function<bool(const PlanNode&)>;

inline PlanNode& first(PlacedGraph& p, const Test& test) {
  auto at = std::find_if(p.nodes.begin(), p.nodes.end(), test);
  if (at == p.nodes.end()) throw InternalError("the plan has no node to damage");
  return *at;
}
inline Test op(const char* name) {
  return [name](const PlanNode& n) { return n.op == name; };
}
inline Test waiting(Wait::Relation relation) {
  return [relation](const PlanNode& n) { return std::any_of(n.waits.begin(), n.waits.end(), [&](const Wait& w) { return w.relation == relation; }); };
}
inline PlanStream& stream(PlacedGraph& p, int device, const std::string& name) {
  for (PlanStream& s : p.streams)
    if (s.device == device && s.name == name) return s;
  throw InternalError("the plan has no such stream");
}
inline std::vector<PlanNode*> all(PlacedGraph& p, const Test& test) {
  std::vector<PlanNode*> out;
  for (PlanNode& n : p.nodes)
    if (test(n)) out.push_back(&n);
  return out;
}
inline bool lies_in(const PlanNode& n, Slot::Region region) {
  return !n.by_class.empty() && !n.by_class[0].outputs.empty() && n.by_class[0].outputs[0].region == region;
}

inline bool in_frame(const PlanNode& n) { return lies_in(n, Slot::kKept) || lies_in(n, Slot::kTransient); }

/// Damage to the first node that passes a test.
inline std::function<void(PlacedGraph&)> at(const Test& test, const std::function<void(PlanNode&)>& act) {
  return [=](PlacedGraph& p) { act(first(p, test)); };
}
inline std::function<void(PlanNode&)> without(Wait::Relation relation) {
  return [relation](PlanNode& n) { std::erase_if(n.waits, [&](const Wait& w) { return w.relation == relation; }); };
}
inline void move_to(PlacedGraph& p, PlanNode& n, std::vector<int> devices) {
  p.vectors.push_back(std::move(devices));
  for (TowerClass& c : p.classes) c.pattern.push_back(c.pattern[static_cast<std::size_t>(n.vector)]);
  n.vector = static_cast<int>(p.vectors.size()) - 1;
}
inline Slot& state_slot(PlacedGraph& p, std::size_t which, int device) {
  for (std::size_t g = 0; g < p.groups.size(); ++g)
    if (std::count(p.groups[g].devices.begin(), p.groups[g].devices.end(), device)) {
      std::vector<PlanNode*> state = all(p, [&](const PlanNode& n) { return n.scope == Scope::state && g < n.by_group.size() && !n.by_group[g].outputs.empty(); });
      return state.at(which)->by_group[g].outputs[0];
    }
  throw InternalError("a device is in no group");
}

}  // namespace belfry::test
