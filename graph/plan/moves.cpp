#include <belfry/graph/plan/moves.h>

#include <belfry/graph/structural.h>

namespace belfry {

std::vector<Move> moves_of(const Instances& instances, const PlanNode& n) {
  const PlacedGraph& plan = instances.plan();
  if (n.op != kCopy && n.op != kSplit && !is_join(n)) return {};
  const PlanNode& m = plan.maker(n.inputs[0]);
  const PlanValue& read = plan.value(n.inputs[0]);
  std::vector<Move> out;
  // Where a shared value is read from: beside the reader if it lies there.
  auto nearest = [&](int device) {
    int near = n.op == kCopy ? -1 : instances.near(m.holders, device);
    return near >= 0 ? near : m.holders.front();
  };
  if (n.scope == Scope::tower) {
    for (int t = 0; t < plan.present(); ++t)
      if (int to = plan.device_of(n, t); to >= 0)
        out.push_back({m.scope == Scope::tower ? plan.device_of(m, t) : nearest(to), to, local_type(plan.value(n.outputs[0]), plan.share(t)).bytes()});
    return out;
  }
  for (int to : n.holders) {
    if (m.scope == Scope::tower) {
      for (int t = 0; t < plan.present(); ++t)
        if (int from = plan.device_of(m, t); from >= 0) out.push_back({from, to, local_type(read, plan.share(t)).bytes()});
    } else if (m.scope == Scope::device) {
      for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(m.owners)], plan.towers)) out.push_back({p.device, to, local_type(read, plan.share(-1)).bytes()});
    } else {
      out.push_back({nearest(to), to, local_type(read, plan.share(-1)).bytes()});
    }
  }
  return out;
}

std::map<std::pair<std::string, std::string>, std::int64_t> link_bytes(const PlacedGraph& plan) {
  Instances instances(plan);
  std::map<std::pair<std::string, std::string>, std::int64_t> out;
  for (const PlanNode& n : plan.nodes)
    for (const Move& m : moves_of(instances, n))
      if (const std::string &from = plan.cluster.space(m.from), &to = plan.cluster.space(m.to); from != to) out[{from, to}] += m.bytes;
  return out;
}

}  // namespace belfry
