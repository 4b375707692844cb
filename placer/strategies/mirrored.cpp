#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/cut/launches.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/strategies/buckets_internal.h>
#include <belfry/placer/strategies/spread_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

/// What sums cost on the links, for the size of buckets. The plan's forecast walks the moves themselves.
class SumCosts {
 public:
  SumCosts(const Cluster& cluster, const CostTable& costs, const std::vector<DeviceId>& devices, const std::vector<DeviceId>& adders, int threads)
      : cluster_(cluster), links_(cluster), all_(numbers(devices)), adders_(numbers(adders)), rate_(rate_of(cluster.devices[static_cast<std::size_t>(all_.front())], threads)), handoff_(is_measured(cluster.devices[static_cast<std::size_t>(cluster.host())]) ? costs.handoff : 0) {}

  /// Nothing where no link leads from one to another: the plan is refused by name, if it sums over them at all.
  SumCost of(Reduce way, bool ranged) {
    try {
      return cost(way, ranged);
    } catch (const UserError&) {
      return {};
    }
  }

 private:
  SumCost cost(Reduce way, bool ranged) {
    const double n = static_cast<double>(all_.size());
    if (links_.empty()) return {handoff_, (n + 1) / rate_.bandwidth / (ranged ? n : 1)};
    SumCost out = exchange(ranged);
    if (way == Reduce::hierarchical || way == Reduce::to_one) {
      const SumCost in = to_adders();  // and the way back
      out.fixed += 2 * in.fixed, out.per_byte += 2 * in.per_byte;
    }
    out.fixed += rate_.launch;
    return out;
  }
  std::vector<int> numbers(const std::vector<DeviceId>& devices) const {
    std::vector<int> out;
    for (const DeviceId& d : devices) out.push_back(cluster_.at(d));
    return out;
  }
  /// Among those that hold the sum; in ranges a reduce-scatter, then a gather.
  SumCost exchange(bool ranged) {
    if (adders_.size() < 2) return {};
    std::vector<double> load(links_.ways().size());
    const double bytes = 1e9, share = ranged ? bytes / static_cast<double>(adders_.size()) : bytes, times = ranged ? 2 : 1;
    const double fixed = links_.exchange(adders_, {}, 0, load);
    return {times * fixed, times * (links_.exchange(adders_, {}, share, load) - fixed) / bytes};
  }
  /// From every other device to the adder of its group.
  SumCost to_adders() {
    const std::vector<int> group = link_groups(cluster_);
    std::map<int, double> crossings;
    SumCost out;
    for (int d : all_) {
      auto near = std::find_if(adders_.begin(), adders_.end(), [&](int a) { return group[static_cast<std::size_t>(a)] == group[static_cast<std::size_t>(d)]; });
      const std::vector<int> route = links_.route(d, near == adders_.end() ? adders_.front() : *near);
      out.fixed = std::max(out.fixed, links_.latency(route));
      for (int w : route) out.per_byte = std::max(out.per_byte, ++crossings[w] / links_.ways()[static_cast<std::size_t>(w)].bandwidth);
    }
    return out;
  }

  const Cluster& cluster_;
  Links links_;
  std::vector<int> all_, adders_;
  DeviceRate rate_;
  double handoff_;
};

constexpr std::size_t kMostLaunches = 40'000;  // of a step that is forecast for each size of buckets, as if each device had one tower

/// What a plain step has: no moves, nothing computed again, all kernels there; they are those that the table knows for the ops.
PlaceOptions plain_options(const CostTable& costs) {
  PlaceOptions out;
  if (costs.empty()) return out;
  out.kernels = [known = kernels_by_op(costs)](const KernelQuery& q) {
    auto at = known.find(q.node.op);
    return KernelChoice{at == known.end() ? q.node.op : at->second};
  };
  return out;
}

std::string reason_of(Reduce way, bool ranged, const std::vector<DeviceId>& adders) {
  switch (way) {
    case Reduce::tree: break;
    case Reduce::to_one: return "one device adds, the others copy";
    case Reduce::hierarchical: return fmt::format("one device of each of {} link groups adds its group's parts, then {}, along the tree", adders.size(), ranged ? "its range of all" : "all groups'");
    case Reduce::ring: return ranged ? "each device adds its range in the order of the ring: the bits are not those of the tree" : "too short for a ring: each device adds along the tree";
  }
  return ranged ? "each device adds its range" : "mirrored on every device";
}

}  // namespace

Division Mirrored::divide(const Graph&, const Cluster&) const { return one_per_device(devices, towers, combine, threads, reduction, collectives); }

Rules Mirrored::assign(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs) const {
  std::vector<DeviceId> adders = devices;
  if (reduction == Reduce::to_one && !devices.empty()) adders = {devices.front()};
  if (reduction == Reduce::hierarchical) adders = leaders_of(cluster, devices);
  const std::size_t least = reduction == Reduce::ring ? 2 : 3;  // two exchange as much without ranges
  auto in_ranges = [&](const PlanNode& n) { return adders.size() >= least && objection_to_ranges(tg, n, adders.size()).empty(); };
  auto rules = [&](const std::vector<int>& bucket_of, const std::string& gathered) {
    Rules out = {{"tower_*/**", devices, "a tower per device"}};
    for (std::size_t i = 0; i < tg.nodes.size(); ++i) {
      const PlanNode& n = tg.nodes[i];
      if (!adds_towers(n)) continue;
      const bool ranged = in_ranges(n);
      if (!ranged && !bucket_of[i] && reduction == Reduce::tree) continue;
      const SumWay way = reduction == Reduce::hierarchical ? SumWay::groups : reduction == Reduce::ring && ranged ? SumWay::ring : SumWay::direct;
      out.push_back({n.name, adders, reason_of(reduction, ranged, adders) + (bucket_of[i] ? fmt::format("; bucket {}: {}", bucket_of[i], gathered) : gathered.empty() ? "" : "; by itself: " + gathered), ranged, way, bucket_of[i]});
    }
    out.push_back({"**", devices, "mirrored on every device"});
    return out;
  };
  if (devices.size() < 2) return rules(std::vector<int>(tg.nodes.size()), "");
  const std::vector<int> sums = sums_of_gradients(tg);
  std::vector<bool> ranged;
  for (int i : sums) ranged.push_back(in_ranges(tg.nodes[static_cast<std::size_t>(i)]));
  SumCosts cost(cluster, costs, devices, adders, tg.threads);
  Placement plain{tg.towers, tg.batch, tg.combine, tg.threads, {}, PhaseOrder::by_tower, {}, "mirrored", collectives};
  std::optional<ForecastPlacer> placer;
  // Nothing where it cannot be placed: the plan itself is refused then, with the reason.
  auto seconds = [&](const std::vector<int>& bucket_of) -> std::optional<double> {
    if (tg.nodes.size() * devices.size() > kMostLaunches) return {};
    if (!placer) placer.emplace(tg, cluster, plain_options(costs), costs);
    plain.rules = rules(bucket_of, "");
    try {
      placer->place_for_time(plain);
      return placer->seconds();
    } catch (const UserError&) {
      return {};
    }
  };
  auto fits = [&](const std::vector<int>& bucket_of) {
    plain.rules = rules(bucket_of, "");
    return over_memory(placer->place(plain, 0)).empty();
  };
  const Buckets buckets = bucketed(tg, cluster, costs, devices, sums, ranged, bucket, cost.of(reduction, false), cost.of(reduction, true), {seconds, fits});
  return rules(buckets.of, buckets.reason);
}

}  // namespace belfry
