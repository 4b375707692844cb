#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/graph/glob.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/lower_internal.h>

namespace belfry {

namespace {

/// A sum of some towers' parts before the join that reads it.
PlanNode sum_before(PlacedGraph& plan, const PlanNode& join, const char* suffix, const char* reason) {
  const bool max = join.attributes.text("how") == "max";
  PlanNode out = inserted_node(join, join.name + suffix, kPreAggregate, join.inputs[0], Scope::device, reason);
  out.attributes = {{"how", max ? "max" : "sum"}};
  out.role = plan.maker(join.inputs[0]).role;
  out.outputs = {value_like(plan, join.inputs[0], out.name, partial(max ? Reduction::max : Reduction::sum))};
  return out;
}

DeviceList devices_in(const std::vector<int>& vector) {
  std::set<int> out(vector.begin(), vector.end());
  out.erase(-1);
  return std::vector<int>(out.begin(), out.end());
}

}  // namespace

void check_buckets(const PlacedGraph& plan, const std::vector<PlacementRule>& rules) {
  std::map<int, const PlanNode*> first;
  auto rule_of = [&](const PlanNode& n) {
    for (const PlacementRule& r : rules)
      if (glob_matches(r.match, n.name)) return r.match;
    return n.name;
  };
  auto list = [&](const PlanNode& n) { return to_string(plan.cluster.ids(n.holders)); };
  for (const PlanNode& n : plan.nodes) {
    if (!n.bucket || !is_op(n, kAggregate)) continue;
    const PlanNode& other = *first.try_emplace(n.bucket, &n).first->second;
    const std::string why = n.holders != other.holders ? fmt::format("one is on {}, the other on {}", list(other), list(n))
                            : n.ranged != other.ranged ? "one is in ranges, the other whole"
                            : n.sum != other.sum       ? fmt::format("one is added by way of {}, the other of {}", to_string(other.sum), to_string(n.sum))
                            : n.epoch != other.epoch   ? "towers read what lies between them"
                                                       : "";
    if (!why.empty())
      throw UserError(fmt::format("'{}' and '{}' are in bucket {} by the rules \"{}\" and \"{}\", but {}; give them buckets of their own, or make the rules alike", other.name, n.name, n.bucket,
                                  rule_of(other), rule_of(n), why));
  }
}

void insert_pre_aggregates(PlacedGraph& plan) {
  std::map<int, std::map<int, int>> counts;  // owners → device → its towers
  std::map<int, DeviceList> holders_of;      // owners → the devices that have towers
  std::vector<std::pair<int, PlanNode>> out;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    if (!is_join(n) || plan.value(n.inputs[0]).state.is_replicated()) continue;
    n.owners = plan.maker(n.inputs[0]).vector;
    auto [known, fresh] = counts.try_emplace(n.owners);
    std::map<int, int>& towers_on = known->second;
    const std::vector<int>& owners = plan.vectors[static_cast<std::size_t>(n.owners)];
    if (fresh)
      for (int d : owners)
        if (d >= 0) ++towers_on[d];
    bool several = std::any_of(towers_on.begin(), towers_on.end(), [](auto c) { return c.second > 1; });
    if (!several || !adds_parts(n)) continue;
    if (towers_on.size() == 1 && n.holders.size() == 1 && n.holders.front() == towers_on.begin()->first) continue;  // all is at home
    PlanNode pre = sum_before(plan, n, ".pre", "each device joins its own towers first");
    pre.owners = n.owners;
    DeviceList& holders = holders_of[n.owners];
    if (holders.empty()) holders = devices_in(owners);
    pre.holders = holders;
    n.inputs = pre.outputs;
    out.emplace_back(static_cast<int>(i) - 1, std::move(pre));
  }
  insert_behind(plan, std::move(out));
}

bool go_by_host(const Cluster& cluster, const std::vector<int>& from, const std::vector<int>& to) {
  if (cluster.peers.empty()) return false;
  return std::any_of(to.begin(), to.end(), [&](int t) { return std::any_of(from.begin(), from.end(), [&](int f) { return f >= 0 && cluster.stage(f, t) >= 0; }); });
}

void join_on_host(PlacedGraph& plan) {
  for (PlanNode& n : plan.nodes) {
    if (!is_op(n, kAggregate) || adds_parts(n) || plan.maker(n.inputs[0]).scope != Scope::tower || !go_by_host(plan.cluster, plan.devices(plan.maker(n.inputs[0])), n.holders)) continue;
    n.holders = cpus_beside(plan.cluster, n.holders);
    n.reason = "its devices do not read each other's memory: the host joins the towers";
  }
}

namespace {

/// Whether the leaders of a sum's link groups could not read what they add.
bool leaders_need_host(const PlacedGraph& plan, const PlanNode& n) {
  if (plan.cluster.peers.empty() || n.sum != SumWay::groups) return false;
  const std::vector<int>& owners = plan.vectors[static_cast<std::size_t>(n.owners)];
  const std::vector<int> leaders = group_leaders(plan.cluster, owners, n.holders);
  for (std::size_t t = 0; t < owners.size(); ++t)
    if (owners[t] >= 0 && plan.cluster.stage(owners[t], leaders[t]) >= 0) return true;
  return false;
}

}  // namespace

void insert_group_sums(PlacedGraph& plan) {
  std::map<std::pair<int, DeviceList>, int> leaders;  // by owners and holders
  std::vector<std::pair<int, PlanNode>> out;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    if (n.sum != SumWay::groups || n.owners < 0 || leaders_need_host(plan, n)) continue;
    auto [known, fresh] = leaders.try_emplace({n.owners, n.holders}, -1);
    if (fresh) known->second = vector_number(plan, group_leaders(plan.cluster, plan.vectors[static_cast<std::size_t>(n.owners)], n.holders));
    if (known->second == n.owners || !adds_parts(n)) continue;
    PlanNode group = sum_before(plan, n, ".group", "one device of each link group joins its group's parts first");
    group.owners = n.owners = known->second;
    group.holders = devices_in(plan.vectors[static_cast<std::size_t>(n.owners)]);
    n.inputs = group.outputs;
    out.emplace_back(static_cast<int>(i) - 1, std::move(group));
  }
  insert_behind(plan, std::move(out));
}

void insert_host_sums(PlacedGraph& plan) {
  if (plan.cluster.peers.empty()) return;
  std::map<std::tuple<int, DeviceList, SumWay>, bool> by_host;
  std::vector<std::pair<int, PlanNode>> out;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    if (n.owners < 0 || !is_op(n, kAggregate) || !adds_parts(n) || kernel_of_moves(plan, n) != n.op) continue;
    auto [known, fresh] = by_host.try_emplace({n.owners, n.holders, n.sum});
    if (fresh) known->second = go_by_host(plan.cluster, plan.vectors[static_cast<std::size_t>(n.owners)], n.holders) || leaders_need_host(plan, n);
    if (!known->second) continue;
    if (n.sum == SumWay::ring)
      throw UserError(fmt::format("'{}' is added round a ring of {}, which do not read each other's memory: the host would add in another order; take another reduction, tree or hierarchical (-O reduction=tree), or leave \"sum\" out of its rule", n.name,
                                  to_string(plan.cluster.ids(n.holders))));
    PlanNode host = sum_before(plan, n, ".host", "GPUs that do not read each other's memory: the host adds their parts");
    host.owners = n.owners = vector_number(plan, host_adders(plan.cluster, plan.vectors[static_cast<std::size_t>(n.owners)]));
    host.holders = devices_in(plan.vectors[static_cast<std::size_t>(n.owners)]);
    n.inputs = host.outputs;
    out.emplace_back(static_cast<int>(i) - 1, std::move(host));
  }
  insert_behind(plan, std::move(out));
}

}  // namespace belfry
