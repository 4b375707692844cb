#include <belfry/placer/recompute.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/requests.h>

namespace belfry {

namespace {

/// Computed by the towers in the forward pass, as the user's graph has it.
bool is_forward(const PlanNode& n) {
  return n.scope == Scope::tower && n.role == Role::forward && !n.inserted && (n.op == kFused || (n.def && n.members.empty()));
}

std::int64_t bytes_of(const TowerGraph& g, const PlanNode& n) {
  std::int64_t out = 0;
  for (ValueIndex v : n.outputs)
    if (g.value(v).read) out += local_type(g.value(v), g.share(0)).bytes();
  return out;
}

class Recomputer {
 public:
  Recomputer(TowerGraph& g, const std::vector<std::string>& names) : g_(g), before_(std::move(g.nodes)), chosen_(before_.size()), again_(g.values.size(), -1) {
    std::set<std::string> wanted(names.begin(), names.end());
    for (std::size_t i = 0; i < before_.size(); ++i) chosen_[i] = is_forward(before_[i]) && is_named(before_[i], wanted);
    // A node of the graph that nothing needs here has no part in this plan.
    std::erase_if(wanted, [&](const std::string& name) { return g_.graph->find_node(name) >= 0 && std::none_of(before_.begin(), before_.end(), [&](const PlanNode& n) { return n.name == name; }); });
    if (wanted.empty()) return;
    std::vector<std::string> known;
    for (const PlanNode& n : before_)
      if (is_forward(n)) known.push_back(n.name);
    throw UserError(fmt::format("'{}' is to be computed again, but the towers have no such node in their forward pass{}; name one that is there, or take it out of \"recompute\"",
                                *wanted.begin(), did_you_mean(*wanted.begin(), known)));
  }

  void run() {
    for (const PlanNode& n : before_) {
      PlanNode mine = n;
      if (n.scope == Scope::tower && n.role == Role::backward) read_again(mine);
      g_.nodes.push_back(std::move(mine));
    }
    reindex(g_);
    mark_unread(g_);
  }

 private:
  /// By its name, or a member's: these are crossed off.
  bool is_named(const PlanNode& n, std::set<std::string>& wanted) const {
    bool out = wanted.erase(n.name);
    for (const Member& m : n.members) out = wanted.erase(g_.graph->node(m.node).name) || out;
    return out;
  }

  int maker(ValueIndex v) const { return g_.values[static_cast<std::size_t>(v)].maker; }

  /// Points inputs that are to be computed again to their second makers, which come into being here.
  void read_again(PlanNode& reader) {
    std::vector<ValueIndex> read = values_read(reader);
    for (ValueIndex& v : reader.inputs)
      if (std::find(read.begin(), read.end(), v) != read.end() && chosen_[static_cast<std::size_t>(maker(v))]) v = again(v);
  }

  ValueIndex again(ValueIndex v) {
    if (again_[static_cast<std::size_t>(v)] >= 0) return again_[static_cast<std::size_t>(v)];
    PlanNode n = before_[static_cast<std::size_t>(maker(v))];
    read_again(n);
    n.name += kAgain;
    n.inserted = n.again = true;
    n.role = Role::backward;
    for (std::size_t k = 0; k < n.outputs.size(); ++k) {
      PlanValue second = g_.value(n.outputs[k]);
      second.name.insert(std::min(second.name.find(':'), second.name.size()), kAgain);
      again_[static_cast<std::size_t>(n.outputs[k])] = static_cast<ValueIndex>(g_.values.size());
      n.outputs[k] = static_cast<ValueIndex>(g_.values.size());
      g_.values.push_back(std::move(second));
    }
    g_.nodes.push_back(std::move(n));
    return again_[static_cast<std::size_t>(v)];
  }

  TowerGraph& g_;
  std::vector<PlanNode> before_;
  std::vector<bool> chosen_;         // per node before
  std::vector<ValueIndex> again_;    // per value before, its second one
};

}  // namespace

std::vector<std::string> nodes_to_recompute(const TowerGraph& g, int stretches, const std::vector<bool>& leaves) {
  if (stretches < 2) throw UserError(fmt::format("the forward pass can be computed again from 2 stretches on, not {}", stretches));
  std::vector<bool> held(g.nodes.size());  // read by backward
  for (const PlanNode& n : g.nodes)
    if (n.scope == Scope::tower && n.role == Role::backward)
      for (ValueIndex v : values_read(n)) held[static_cast<std::size_t>(g.value(v).maker)] = true;
  std::int64_t all = 0, before = 0;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (is_forward(g.nodes[i]) && held[i]) all += bytes_of(g, g.nodes[i]);
  std::vector<int> stretch(g.nodes.size(), stretches - 1);
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    if (!is_forward(g.nodes[i])) continue;
    stretch[i] = static_cast<int>(std::min<std::int64_t>(stretches - 1, before * stretches / std::max<std::int64_t>(all, 1)));
    if (held[i]) before += bytes_of(g, g.nodes[i]);
  }
  std::vector<bool> kept = leaves;  // or read by a later stretch
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (is_forward(g.nodes[i]))
      for (ValueIndex v : values_read(g.nodes[i]))
        if (auto m = static_cast<std::size_t>(g.value(v).maker); stretch[m] < stretch[i]) kept[m] = true;
  std::vector<std::string> out;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (is_forward(g.nodes[i]) && !kept[i] && stretch[i] < stretches - 1) out.push_back(g.nodes[i].name);
  return out;
}

std::vector<bool> leaves_device(const TowerGraph& towers, const std::vector<PlacementRule>& rules, const Cluster& cluster) {
  check_devices(towers, rules, cluster);
  PlacedGraph plan;
  static_cast<TowerGraph&>(plan) = towers;
  plan.placement.towers = towers.towers;
  plan.cluster = cluster;
  assign(plan, rules, NodeNames(towers), readers_of(towers));
  auto apart = [&](const PlanNode& m, const PlanNode& n) {
    int out = 0;
    for (int t = 0; m.vector != n.vector && t < plan.present(); ++t) out += plan.device_of(m, t) != plan.device_of(n, t);
    return 2 * out >= plan.present() && out > 0;
  };
  std::vector<bool> out(plan.nodes.size());
  for (const PlanNode& n : plan.nodes) {
    if (!is_forward(n)) continue;
    for_values_read(n, [&](ValueIndex v) {
      const auto maker = static_cast<std::size_t>(plan.value(v).maker);
      if (is_forward(plan.nodes[maker]) && !out[maker]) out[maker] = apart(plan.nodes[maker], n);
    });
  }
  return out;
}

void recompute(TowerGraph& towers, const std::vector<std::string>& names) {
  if (!names.empty()) Recomputer(towers, names).run();
}

}  // namespace belfry
