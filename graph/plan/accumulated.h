// Sums that towers in turn add to as they make their parts: the tower tree by a stack of buffers on each device.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

/// A pre_aggregate inside the towers: each adds its part to sums that those before it on its device have left, as far as that completes
/// subtrees of the tower tree.
inline bool accumulates(const PlanNode& n) { return n.scope == Scope::tower && is_op(n, "pre_aggregate"); }
/// What it does in one tower, by a stack of buffers on the device: with the sums of the towers `reads`, which it takes off, its part
/// becomes the sum of towers [low, high), in the buffer `at`.
struct Accumulated {
  int low = 0, high = 0, at = 0;
  std::vector<int> reads;
  bool stays = true;  ///< no later tower reads it: the join does
};
/// Per tower; nothing is said of those that are absent. A device's towers run in their order.
std::vector<Accumulated> accumulated(const std::vector<int>& owners, int towers);
/// Per device, how many buffers its stack has.
std::vector<int> stack_depths(const std::vector<int>& owners, int towers, std::size_t devices);

/// All of a plan, by vector, found when they are first asked for.
class Stacks {
 public:
  explicit Stacks(const PlacedGraph& plan) : plan_(plan) {}
  explicit Stacks(PlacedGraph&&) = delete;  // it reads the plan: keep it
  /// Of a node that accumulates, per tower.
  const std::vector<Accumulated>& of(const PlanNode& n) const {
    auto [at, fresh] = known_.try_emplace(n.vector);
    if (fresh) at->second = accumulated(plan_.devices(n), plan_.towers);
    return at->second;
  }
  const Accumulated& of(const PlanNode& n, int tower) const { return of(n)[static_cast<std::size_t>(tower)]; }
  /// Of what towers make for joins, whether a tower leaves it: of sums in stacks what no later tower takes off.
  bool is_joined(const PlanNode& n, int tower) const { return !accumulates(n) || of(n, tower).stays; }

 private:
  const PlacedGraph& plan_;
  mutable std::map<int, std::vector<Accumulated>> known_;
};

}  // namespace belfry
