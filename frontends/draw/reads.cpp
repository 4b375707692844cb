#include <belfry/frontends/draw/reads_internal.h>

#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

namespace belfry::picture {

namespace {

void read_moved(const Instances& instances, const PlanNode& n, int tower, int device, std::vector<Read>& out) {
  const PlacedGraph& plan = instances.plan();
  const ValueIndex v = n.inputs[0];
  const int maker = plan.value(v).maker;
  const PlanNode& m = plan.maker(v);
  auto bytes = [&](ValueIndex of, int t) { return local_type(plan.value(of), plan.share(t)).bytes(); };
  if (m.scope == Scope::tower) {
    if (n.scope == Scope::tower) return out.push_back({maker, tower, plan.device_of(m, tower), bytes(n.outputs[0], tower)});
    for (int t = 0; t < plan.present(); ++t)
      if (int from = plan.device_of(m, t); from >= 0 && takes_part(plan, n, t, device)) out.push_back({maker, t, from, bytes(v, t)});
  } else if (m.scope == Scope::device) {
    for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers))
      if (takes_part(plan, n, p.low, device)) out.push_back({maker, -1, p.device, bytes(v, -1)});
  } else {
    out.push_back({maker, -1, instances.moved_from(n, v, device), bytes(n.scope == Scope::tower ? n.outputs[0] : v, tower)});
  }
}

}  // namespace

std::vector<Read> reads_of(const Instances& instances, const PlanNode& n, int tower, int device) {
  const PlacedGraph& plan = instances.plan();
  std::vector<Read> out;
  if (moves_values(n)) {
    read_moved(instances, n, tower, device, out);
    return out;
  }
  for (ValueIndex v : values_read(n)) {
    const bool own = n.scope == Scope::tower && plan.maker(v).scope == Scope::tower;
    const Instances::At at = own ? instances.own(v, tower, device) : instances.shared(v, device);
    const bool of_tower = plan.nodes[static_cast<std::size_t>(at.node)].scope == Scope::tower;
    out.push_back({at.node, of_tower ? tower : -1, at.device, local_type(plan.value(v), plan.share(of_tower ? tower : -1)).bytes()});
  }
  return out;
}

std::vector<std::pair<int, int>> instances_of(const PlacedGraph& plan, const PlanNode& n) {
  std::vector<std::pair<int, int>> out;
  if (n.scope != Scope::tower) {
    for (int d : n.holders) out.emplace_back(-1, d);
    return out;
  }
  for (int t = 0; t < plan.present(); ++t)
    if (int d = plan.device_of(n, t); d >= 0) out.emplace_back(t, d);
  return out;
}

}  // namespace belfry::picture
