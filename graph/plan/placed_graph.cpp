#include <belfry/graph/plan/placed_graph.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::vector<int> space_numbers(const Cluster& cluster) {
  std::unordered_map<std::string_view, int> known;
  std::vector<int> out;
  for (const ClusterDevice& d : cluster.devices) out.push_back(known.try_emplace(d.space, static_cast<int>(known.size())).first->second);
  return out;
}

DeviceList all_devices(const PlacedGraph& plan, const PlanNode& node) {
  if (node.scope != Scope::tower) return node.holders;
  std::set<int> out(plan.devices(node).begin(), plan.devices(node).end());
  out.erase(-1);
  return std::vector<int>(out.begin(), out.end());
}

std::vector<int> devices_of_towers(const PlacedGraph& plan, const PlanNode& node) {
  std::vector<int> out = plan.devices(node);
  out.resize(static_cast<std::size_t>(plan.towers), -1);
  for (std::size_t k = 0, t = static_cast<std::size_t>(plan.present()); k < node.idle.size() && t < out.size(); ++k, ++t) out[t] = node.idle.get()[k];
  return out;
}

bool is_exact(const PlacedGraph& plan, const PlanNode& n) {
  if (!is_op(n, kFused)) return !n.def || n.def->exact;
  return std::all_of(n.members.begin(), n.members.end(), [&](const Member& m) { return plan.graph->node(m.node).op->exact; });
}
bool changes_nothing(const PlanNode& n) { return is_op(n, kCopy) || is_op(n, kPreAggregate) || is_op(n, kStore) || is_op(n, kAllGather); }
bool moves_values(const PlanNode& n) { return is_op(n, kCopy) || is_op(n, kSplit) || is_op(n, kPreAggregate) || is_join(n); }

Instances::Instances(const PlacedGraph& plan)
    : plan_(plan), copies_(plan.values.size(),
                           [&](auto add) {
                             for (std::size_t i = 0; i < plan.nodes.size(); ++i)
                               if (is_op(plan.nodes[i], kCopy)) add(static_cast<std::size_t>(copied_by(plan, plan.nodes[i])), static_cast<int>(i));
                           }),
      space_(space_numbers(plan.cluster)) {}

int Instances::near(const std::vector<int>& holders, int device) const {
  if (const auto at = static_cast<std::size_t>(device); at < holders.size() && holders[at] == device) return device;  // where all devices hold it
  int beside = -1;
  for (int h : holders) {
    if (h == device) return device;
    if (beside < 0 && space_[static_cast<std::size_t>(h)] == space_[static_cast<std::size_t>(device)]) beside = h;
  }
  return beside;
}

Instances::At Instances::shared(ValueIndex v, int device) const {
  int maker = plan_.value(v).maker;
  if (int d = near(plan_.nodes[static_cast<std::size_t>(maker)].holders, device); d >= 0) return {maker, d};
  for (int c : copies(v))
    if (int d = near(plan_.nodes[static_cast<std::size_t>(c)].holders, device); d >= 0) return {c, d};
  throw UserError(fmt::format("unbound: no instance of '{}' serves {}", plan_.value(v).name, to_string(plan_.cluster.devices[static_cast<std::size_t>(device)].id)));
}

int Instances::moved_from(const PlanNode& move, ValueIndex v, int device) const {
  const std::vector<int>& holders = plan_.maker(v).holders;
  int beside = is_op(move, kCopy) ? -1 : near(holders, device);
  if (beside >= 0 || holders.size() < 2) return beside >= 0 ? beside : holders.front();
  if (group_.empty()) group_ = link_groups(plan_.cluster);
  const Cluster& cluster = plan_.cluster;
  auto first = [&](auto fits) { return std::find_if(holders.begin(), holders.end(), [&](int h) { return fits(h) && cluster.stage(h, device) < 0; }); };
  auto at = first([&](int h) { return group_[static_cast<std::size_t>(h)] == group_[static_cast<std::size_t>(device)]; });
  if (at == holders.end() && !cluster.peers.empty()) at = first([&](int h) { return cluster.devices[static_cast<std::size_t>(h)].id.host == cluster.devices[static_cast<std::size_t>(device)].id.host; });
  if (at == holders.end()) at = first([](int) { return true; });
  return at == holders.end() ? holders.front() : *at;
}

Instances::At Instances::own(ValueIndex v, int tower, int device) const {
  auto here = [&](int node) -> int {
    const PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
    int d = n.scope == Scope::tower ? plan_.device_of(n, tower) : -1;
    return d >= 0 && space_[static_cast<std::size_t>(d)] == space_[static_cast<std::size_t>(device)] ? d : -1;
  };
  if (int d = here(plan_.value(v).maker); d >= 0) return {plan_.value(v).maker, d};
  for (int c : copies(v))
    if (int d = here(c); d >= 0) return {c, d};
  throw UserError(fmt::format("unbound: no instance of '{}' of tower {} serves {}", plan_.value(v).name, tower, to_string(plan_.cluster.devices[static_cast<std::size_t>(device)].id)));
}

std::vector<Piece> pieces(const std::vector<int>& owners, int towers) {
  std::vector<Piece> out;
  std::function<void(int, int)> walk = [&](int low, int high) {
    std::set<int> mine;
    for (int t = low; t < std::min(high, static_cast<int>(owners.size())); ++t)
      if (owners[static_cast<std::size_t>(t)] >= 0) mine.insert(owners[static_cast<std::size_t>(t)]);
    if (mine.size() == 1) return out.push_back({low, high, *mine.begin()});
    if (mine.empty()) return;
    int middle = low + tree_cut(high - low);
    walk(low, middle);
    walk(middle, high);
  };
  walk(0, towers);
  return out;
}

}  // namespace belfry
