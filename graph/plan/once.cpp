#include <belfry/graph/plan/once.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::string why_each_step(const PlacedGraph& plan, const PlanNode& n) {
  if (!plan.updates.empty()) return fmt::format("each step updates variables, as '{}'", plan.value(plan.updates.front().first).name);
  if (n.scope != Scope::shared) return "it does not stand outside the towers";
  if (is_op(n, kInput)) return "it is fed";
  // A copy in each step needs its bytes no longer than its readers; held, the weights of a device that has them elsewhere would all lie in it at once.
  if (n.ranged || moves_values(n)) return "it brings values from device to device";
  if (n.def && n.def->random) return "it draws other numbers each time";
  std::string out;
  for_values_read(n, [&](ValueIndex v) {
    const PlanNode& m = plan.maker(v);
    auto has = [&](int device) { return std::find(m.holders.begin(), m.holders.end(), device) != m.holders.end(); };
    if (!out.empty()) return;
    if (!is_there(m)) out = fmt::format("it reads '{}', which is made in each step", plan.value(v).name);
    else if (m.ranged || (m.holders != n.holders && !std::all_of(n.holders.begin(), n.holders.end(), has))) out = fmt::format("it reads '{}', which is not whole on each of its devices", plan.value(v).name);
  });
  return out;
}

void set_once(PlacedGraph& plan) {
  for (PlanNode& n : plan.nodes) n.once = false;
  if (!plan.updates.empty() || std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.role == Role::backward; })) return;
  for (PlanNode& n : plan.nodes)  // makers come before their readers
    n.once = n.scope == Scope::shared && why_each_step(plan, n).empty();
}

std::vector<bool> kept_values(const PlacedGraph& plan) {
  std::vector<bool> out(plan.values.size());
  for (const PlanNode& n : plan.nodes)
    if (!n.once)
      for_values_read(n, [&](ValueIndex v) { out[static_cast<std::size_t>(v)] = out[static_cast<std::size_t>(v)] || plan.maker(v).once; });
  return out;
}

}  // namespace belfry
