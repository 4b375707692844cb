#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/cut/launches.h>
#include <belfry/placer/strategies/spread_internal.h>

namespace belfry {

namespace {

constexpr std::size_t kMostDevices = 256;  // ways between all pairs are looked at

/// Seconds by way.
using Load = std::map<int, double>;

/// What a byte of a variable costs where it lies on one device: what its copies take when a step begins, and the parts of its
/// gradient at the end. The two never meet.
struct Home {
  int device = 0;  ///< in the cluster
  Load copies, parts;
};

/// Of the ways that something more takes, the one that is then busy the longest.
double busiest(const Load& load, const Load& more, double bytes) {
  double out = 0;
  for (const auto& [way, per_byte] : more) {
    auto known = load.find(way);
    out = std::max(out, (known == load.end() ? 0 : known->second) + bytes * per_byte);
  }
  return out;
}

class Chooser {
 public:
  Chooser(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& towers, const TowerGraph& tg, const Cluster& cluster, const CostTable& costs)
      : tg_(tg), launches_(tg, cluster, costs), busy_(devices.size()) {
    Links links(cluster);
    for (const DeviceId& d : devices) {
      Home& home = homes_.emplace_back();
      home.device = cluster.at(d);
      for (const DeviceId& t : towers) {
        const int here = home.device, there = cluster.at(t);
        if (cluster.space(here) == cluster.space(there)) continue;
        if (links.empty()) {  // what moves costs what memory does
          for (Load* load : {&home.copies, &home.parts}) (*load)[here] += 1 / rate_of(cluster.devices[static_cast<std::size_t>(here)], tg.threads).bandwidth;
          continue;
        }
        for (int w : links.route(here, there)) home.copies[w] += 1 / links.ways()[static_cast<std::size_t>(w)].bandwidth;
        for (int w : links.route(there, here)) home.parts[w] += 1 / links.ways()[static_cast<std::size_t>(w)].bandwidth;
      }
    }
  }

  /// The device with which the busiest ways and device of all are busy the least, then its own; with what that would be on each.
  std::pair<std::size_t, std::vector<double>> choose(const Graph& g, NodeId head) {
    const double bytes = static_cast<double>(local_type(g.node(head).types[0], 1).bytes());
    std::vector<double> after;
    std::vector<std::pair<double, double>> keys;
    for (std::size_t d = 0; d < homes_.size(); ++d) {
      const double copies = busiest(copies_, homes_[d].copies, bytes), parts = busiest(parts_, homes_[d].parts, bytes), own = busy_[d] + update(head, homes_[d].device);
      after.push_back(std::max(most_copies_, copies) + std::max(most_parts_, parts) + std::max(most_busy_, own));
      keys.emplace_back(after.back(), copies + parts + own);
    }
    const auto best = static_cast<std::size_t>(std::min_element(keys.begin(), keys.end()) - keys.begin());
    const Home& h = homes_[best];
    most_busy_ = std::max(most_busy_, busy_[best] += update(head, h.device));
    most_copies_ = std::max(most_copies_, busiest(copies_, h.copies, bytes));
    most_parts_ = std::max(most_parts_, busiest(parts_, h.parts, bytes));
    for (const auto& [w, per_byte] : h.copies) copies_[w] += bytes * per_byte;
    for (const auto& [w, per_byte] : h.parts) parts_[w] += bytes * per_byte;
    return {best, after};
  }

 private:
  /// Seconds of the aggregate and update of a variable on a device.
  double update(NodeId head, int device) {
    if (updates_.empty())
      for (auto [variable, u] : tg_.updates) updates_[tg_.maker(variable).user].push_back(tg_.value(u).maker);
    double out = 0;
    for (int node : updates_[head])
      if (tg_.nodes[static_cast<std::size_t>(node)].scope == Scope::shared) out += launches_.seconds(node, device);
    return out;
  }

  const TowerGraph& tg_;
  Launches launches_;
  std::vector<Home> homes_;
  std::vector<double> busy_;
  Load copies_, parts_;
  double most_copies_ = 0, most_parts_ = 0, most_busy_ = 0;
  std::map<NodeId, std::vector<int>> updates_;
};

}  // namespace

Rules chosen_over(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& towers, const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, Rules before) {
  if (devices.size() > kMostDevices) throw UserError(fmt::format("variables=chosen looks at {} devices at the most, and there are {}; take variables=spread", kMostDevices, devices.size()));
  Chooser chooser(devices, towers, tg, cluster, costs);
  const std::vector<VariableHead> heads = variable_heads(*tg.graph);
  std::vector<std::size_t> device;
  std::vector<std::string> reasons;
  for (const VariableHead& h : heads) {
    const auto [best, after] = chooser.choose(*tg.graph, h.node);
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < devices.size(); ++d)
      if (d != best) order.push_back(d);
    std::stable_sort(order.begin(), order.end(), [&after = after](std::size_t a, std::size_t b) { return after[a] < after[b]; });
    std::string losers;
    for (std::size_t k = 0; k < std::min<std::size_t>(order.size(), 4); ++k) losers += fmt::format("{} {:.4g} ms on {}", losers.empty() ? ";" : ",", 1e3 * after[order[k]], to_string(devices[order[k]]));
    if (order.size() > 4) losers += fmt::format(", no less on {} more", order.size() - 4);
    device.push_back(best);
    reasons.push_back(fmt::format("chosen by cost: here the busiest ways and device take {:.4g} ms{}", 1e3 * after[best], losers));
  }
  return put_variables(tg, devices, heads, device, reasons, std::move(before));
}

}  // namespace belfry
