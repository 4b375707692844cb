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

/// What a byte of a variable costs where it lies on one device: seconds of each way that its parts and copies take.
struct Home {
  std::map<int, double> ways;
};

class Chooser {
 public:
  Chooser(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& towers, const TowerGraph& tg, const Cluster& cluster, const CostTable& costs)
      : devices_(devices), tg_(tg), launches_(tg, cluster, costs), busy_(devices.size()) {
    Links links(cluster);
    for (const DeviceId& d : devices) {
      Home& home = homes_.emplace_back();
      for (const DeviceId& t : towers) {
        const int here = cluster.at(d), there = cluster.at(t);
        if (cluster.space(here) == cluster.space(there)) continue;
        if (links.empty()) {  // what moves costs what memory does
          home.ways[-1 - here] += 2 / rate_of(cluster.devices[static_cast<std::size_t>(here)], tg.threads).bandwidth;
          continue;
        }
        for (const auto& route : {links.route(there, here), links.route(here, there)})
          for (int w : route) home.ways[w] += 1 / links.ways()[static_cast<std::size_t>(w)].bandwidth;
      }
    }
  }

  /// The device on which the variable adds the least to the busiest, with what it would be on each.
  std::pair<std::size_t, std::vector<double>> choose(const Graph& g, NodeId head) {
    const double bytes = static_cast<double>(LocalType{g.node(head).types[0].dtype, extents_of(g.node(head).types[0].shape, 1)}.bytes());
    std::vector<double> after;
    std::vector<std::pair<double, double>> keys;  // the busiest of what it uses, then what it takes in all
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      double most = busy_[d] + update(head, devices_[d]), all = update(head, devices_[d]);
      for (const auto& [w, per_byte] : homes_[d].ways) {
        auto known = way_busy_.find(w);
        most = std::max(most, (known == way_busy_.end() ? 0 : known->second) + bytes * per_byte);
        all += bytes * per_byte;
      }
      after.push_back(most);
      keys.emplace_back(most, all);
    }
    const auto best = static_cast<std::size_t>(std::min_element(keys.begin(), keys.end()) - keys.begin());
    busy_[best] += update(head, devices_[best]);
    for (const auto& [w, per_byte] : homes_[best].ways) way_busy_[w] += bytes * per_byte;
    return {best, after};
  }

 private:
  /// Seconds of the aggregate and update of a variable on a device.
  double update(NodeId head, const DeviceId& device) {
    if (updates_.empty())
      for (auto [variable, u] : tg_.updates) updates_[tg_.maker(variable).user].push_back(tg_.value(u).maker);
    double out = 0;
    for (int node : updates_[head])
      if (tg_.nodes[static_cast<std::size_t>(node)].scope == Scope::shared) out += launches_.seconds(node, device);
    return out;
  }

  const std::vector<DeviceId>& devices_;
  const TowerGraph& tg_;
  Launches launches_;
  std::vector<Home> homes_;
  std::vector<double> busy_;
  std::map<int, double> way_busy_;
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
    reasons.push_back(fmt::format("chosen by cost: here the busiest way or device is busy for {:.4g} ms{}", 1e3 * after[best], losers));
  }
  return put_variables(tg, devices, heads, device, reasons, std::move(before));
}

}  // namespace belfry
