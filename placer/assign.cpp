#include <belfry/placer/assign.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// A rule that matches a name, and the tower it speaks of (-1 every tower, -2 everything).
struct Hit {
  int rule = 0, tower = -2;
  auto operator<=>(const Hit&) const = default;
};
using Hits = std::vector<Hit>;

/// Exact names by hash, globs in order.
class RuleFinder {
 public:
  explicit RuleFinder(const std::vector<PlacementRule>& rules) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      auto [tower, rest] = split_match(rules[i].match);
      Hit hit{static_cast<int>(i), tower};
      if (rest.find_first_of("*?") == rest.npos) exact_[rest].push_back(hit);
      else globs_.push_back({hit, rest});
    }
  }
  Hits find(const std::string& name) const {
    Hits out;
    if (auto at = exact_.find(name); at != exact_.end()) out = at->second;
    for (const auto& [hit, pattern] : globs_)
      if (glob_matches(pattern, name)) out.push_back(hit);
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::unordered_map<std::string, Hits> exact_;
  std::vector<std::pair<Hit, std::string>> globs_;
};

class Assigner {
 public:
  explicit Assigner(PlacedGraph& plan) : plan_(plan), rules_(plan.placement.rules), finder_(rules_) {
    for (const PlacementRule& r : rules_) {
      std::vector<int> devices;
      for (const DeviceId& id : r.devices) devices.push_back(plan.cluster.at(id));
      if (devices.empty()) throw UserError(fmt::format("the rule '{}' names no device", r.match));
      devices_.push_back(std::move(devices));
      if (int tower = split_match(r.match).first; tower >= plan.placement.towers)
        throw UserError(fmt::format("the rule '{}' speaks of tower {}, but there are {}", r.match, tower, plan.placement.towers));
    }
  }

  void run() {
    std::map<ValueIndex, Hits> follow;
    for (PlanNode& n : plan_.nodes) {
      Hits hits = finder_.find(n.name);
      // A node that expand put in goes with its source unless a rule speaks of it by name.
      bool by_name = std::any_of(hits.begin(), hits.end(), [&](Hit h) { return split_match(rules_[static_cast<std::size_t>(h.rule)].match).second != "**"; });
      bool towers_apart = std::any_of(hits.begin(), hits.end(), [](Hit h) { return h.tower == -1; });
      if (n.inserted && !by_name && !towers_apart && !n.inputs.empty() && follow.contains(n.inputs[0])) hits = follow[n.inputs[0]];
      for (ValueIndex v : n.outputs) follow[v] = hits;
      place(n, hits);
    }
  }

 private:
  void place(PlanNode& n, const Hits& hits) {
    if (n.op == kInput || n.op == kFetch) {
      n.holders = {plan_.cluster.host()};
      n.reason = n.op == kInput ? "feeds live on the host" : "results live on the host";
    } else if (n.scope == Scope::tower) {
      n.vector = vector_of(n, hits);
      n.reason = rules_[static_cast<std::size_t>(std::find_if(hits.begin(), hits.end(), [](Hit h) { return h.tower < 0; })->rule)].reason;
    } else {
      auto hit = std::find_if(hits.begin(), hits.end(), [](Hit h) { return h.tower == -2; });
      if (hit == hits.end()) refuse(n);
      n.holders = devices_[static_cast<std::size_t>(hit->rule)];
      n.reason = rules_[static_cast<std::size_t>(hit->rule)].reason;
    }
  }

  [[noreturn]] void refuse(const PlanNode& n) const {
    throw UserError(fmt::format("no rule of the placement matches '{}'; end it with {{\"match\": \"**\", \"device\": …}}", n.name));
  }

  int vector_of(const PlanNode& n, const Hits& hits) {
    if (std::none_of(hits.begin(), hits.end(), [](Hit h) { return h.tower < 0; })) refuse(n);
    auto [known, fresh] = known_.try_emplace(hits);
    if (!fresh) return known->second;
    int towers = plan_.placement.towers;
    std::vector<int> out(static_cast<std::size_t>(towers), -1);
    for (int t = 0; t < plan_.present(); ++t) {
      auto hit = std::find_if(hits.begin(), hits.end(), [&](Hit h) { return h.tower < 0 || h.tower == t; });
      out[static_cast<std::size_t>(t)] = dealt(devices_[static_cast<std::size_t>(hit->rule)], t);
    }
    auto at = std::find(plan_.vectors.begin(), plan_.vectors.end(), out);
    known->second = static_cast<int>(at - plan_.vectors.begin());
    if (at == plan_.vectors.end()) plan_.vectors.push_back(std::move(out));
    return known->second;
  }

  /// Contiguous shares of the towers; the first T mod D devices have one more.
  int dealt(const std::vector<int>& devices, int tower) const {
    auto count = static_cast<std::int64_t>(devices.size());
    for (std::int64_t d = 0; d < count; ++d)
      if (tower < share_of(plan_.placement.towers, count, d).past) return devices[static_cast<std::size_t>(d)];
    throw InternalError("a tower is dealt to no device");
  }

  PlacedGraph& plan_;
  const std::vector<PlacementRule>& rules_;
  RuleFinder finder_;
  std::vector<DeviceList> devices_;
  std::map<Hits, int> known_;
};

}  // namespace

void assign(PlacedGraph& plan) { Assigner(plan).run(); }

std::vector<PlacementRule> rules_of_requests(const Graph& graph) {
  std::vector<PlacementRule> out;
  std::vector<std::optional<DeviceId>> wanted;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    std::optional<DeviceId> device = n.device;
    std::string reason = "requested";
    if (!device && n.of >= 0 && n.of < id) {
      device = wanted[static_cast<std::size_t>(n.of)];
      reason = fmt::format("follows '{}'", graph.node(n.of).name);
    }
    wanted.push_back(device);
    if (device) out.push_back({n.name, {*device}, reason});
  }
  return out;
}

}  // namespace belfry
