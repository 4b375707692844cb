#include <belfry/placer/assign.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include <belfry/graph/glob.h>
#include <belfry/graph/plan/ranges.h>
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
  explicit Assigner(PlacedGraph& plan) : plan_(plan), rules_(plan.placement.rules), finder_(rules_), decided_(rules_.size()), devices_(rules_.size()), readers_(readers_of(plan)) {
    for (const PlacementRule& r : rules_) {
      if (r.devices.empty()) throw UserError(fmt::format("the rule '{}' names no device", r.match));
      if (int tower = split_match(r.match).first; tower >= plan.placement.towers)
        throw UserError(fmt::format("the rule '{}' speaks of tower {}, but there are {}", r.match, tower, plan.placement.towers));
    }
  }

  void run() {
    std::map<ValueIndex, Hits> follow;
    std::map<NodeId, Hits> first;  // of nodes that are computed again
    for (PlanNode& n : plan_.nodes) {
      Hits hits = n.again ? first.at(n.user) : finder_.find(n.name);
      if (!n.inserted) first[n.user] = hits;
      // A node that expand put in goes with its source unless a rule speaks of it by name.
      bool by_name = std::any_of(hits.begin(), hits.end(), [&](Hit h) { return split_match(rules_[static_cast<std::size_t>(h.rule)].match).second != "**"; });
      bool towers_apart = std::any_of(hits.begin(), hits.end(), [](Hit h) { return h.tower == -1; });
      if (n.inserted && !n.again && !by_name && !towers_apart && !n.inputs.empty() && follow.contains(n.inputs[0])) hits = follow[n.inputs[0]];
      for (ValueIndex v : n.outputs) follow[v] = hits;
      place(n, hits);
    }
  }

  void check(std::size_t must_decide) const {
    for (std::size_t i = 0; i < std::min(must_decide, rules_.size()); ++i) {
      auto [tower, rest] = split_match(rules_[i].match);
      if (!decided_[i] && rest != "**" && tower < plan_.present()) refuse_idle(rules_[i].match, tower, rest);
    }
  }

 private:
  void place(PlanNode& n, const Hits& hits) {
    if (n.op == kInput || n.op == kFetch) {
      n.holders = {plan_.cluster.host()};
      n.reason = n.op == kInput ? "feeds live on the host" : "results live on the host";
    } else if (n.scope == Scope::tower) {
      std::tie(n.vector, n.reason) = vector_of(n, hits);
    } else {
      auto hit = std::find_if(hits.begin(), hits.end(), [](Hit h) { return h.tower == -2; });
      if (hit == hits.end()) refuse(n);
      n.holders = decide(hit->rule, !held_by_readers(n));
      n.reason = rule(hit->rule).reason;
      n.ranged = rule(hit->rule).ranges;
      if (std::string why = n.ranged ? objection_to_ranges(plan_, n, n.holders.get().size()) : ""; !why.empty())
        throw UserError(fmt::format("the rule \"{}\" puts '{}' in ranges, but it {}; name what can be, or leave out \"ranges\"", rule(hit->rule).match, n.name, why));
    }
  }

  /// The devices of a rule: those of rules that decide nothing need not be there.
  const DeviceList& decide(int i, bool counts) {
    auto at = static_cast<std::size_t>(i);
    if (counts) decided_[at] = true;
    if (!devices_[at].empty()) return devices_[at];
    std::vector<int> devices;
    for (const DeviceId& id : rules_[at].devices) devices.push_back(plan_.cluster.at(id));
    return devices_[at] = std::move(devices);
  }

  [[noreturn]] void refuse(const PlanNode& n) const {
    throw UserError(fmt::format("no rule of the placement matches '{}'; end it with {{\"match\": \"**\", \"device\": …}}", n.name));
  }

  /// What `hold_sources` puts beside its readers, whatever the rules say.
  bool held_by_readers(const PlanNode& n) const {
    return n.scope == Scope::shared && n.def && n.def->source && std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return !readers_[static_cast<std::size_t>(v)].empty(); });
  }

  /// Says why a rule decides nothing.
  [[noreturn]] void refuse_idle(const std::string& match, int tower, const std::string& rest) const {
    std::vector<std::string> names;
    for (const PlanNode& n : plan_.nodes) {
      for (const Member& m : n.members)
        if (const std::string& inner = plan_.graph->node(m.node).name; inner != n.name && glob_matches(rest, inner))
          throw UserError(fmt::format("the rule \"{}\" speaks of '{}', which is computed inside the fused node '{}': move that one", match, inner, n.name));
      if (tower == -2 || n.scope == Scope::tower) names.push_back(n.name);
      if (!glob_matches(rest, n.name)) continue;
      if (tower != -2 && n.scope != Scope::tower) throw UserError(fmt::format("the rule \"{}\" speaks of towers, but '{}' runs outside them: write \"{}\"", match, n.name, rest));
      std::string why = n.op == kInput    ? "is an input: feeds live on the host; move what reads it"
                        : n.op == kFetch  ? "is a result: results live on the host"
                        : held_by_readers(n) ? "is a source, which is computed where it is read; move what reads it"
                                          : fmt::format("is decided by a rule before it ({})", n.reason);
      throw UserError(fmt::format("the rule \"{}\" decides nothing: '{}' {}", match, n.name, why));
    }
    throw UserError(fmt::format("the rule \"{}\" matches no node{}; name one of '{}', or take the rule out: it may be of another graph", match, did_you_mean(rest, names), plan_.graph->name));
  }

  std::pair<int, std::string> vector_of(const PlanNode& n, const Hits& hits) {
    if (std::none_of(hits.begin(), hits.end(), [](Hit h) { return h.tower < 0; })) refuse(n);
    auto [known, fresh] = known_.try_emplace(hits);
    if (!fresh) return known->second;
    int towers = plan_.placement.towers;
    std::vector<int> out(static_cast<std::size_t>(towers), -1);
    std::vector<std::pair<int, int>> decided;  // runs of towers by rule: its number, the run's first tower
    for (int t = 0; t < plan_.present(); ++t) {
      auto hit = std::find_if(hits.begin(), hits.end(), [&](Hit h) { return h.tower < 0 || h.tower == t; });
      if (decided.empty() || rule(decided.back().first).reason != rule(hit->rule).reason) decided.emplace_back(hit->rule, t);
      out[static_cast<std::size_t>(t)] = dealt(decide(hit->rule, true), t);
    }
    auto at = std::find(plan_.vectors.begin(), plan_.vectors.end(), out);
    known->second = {static_cast<int>(at - plan_.vectors.begin()), reason_of(decided)};
    if (at == plan_.vectors.end()) plan_.vectors.push_back(std::move(out));
    return known->second;
  }

  const PlacementRule& rule(int i) const { return rules_[static_cast<std::size_t>(i)]; }

  /// One reason for all towers, or "towers 0-2: a; tower 3: b".
  std::string reason_of(const std::vector<std::pair<int, int>>& decided) const {
    if (decided.size() == 1) return rule(decided[0].first).reason;
    std::string out;
    for (std::size_t i = 0; i < decided.size(); ++i) {
      int first = decided[i].second, last = (i + 1 < decided.size() ? decided[i + 1].second : plan_.present()) - 1;
      out += fmt::format("{}{}: {}", i ? "; " : "", first == last ? fmt::format("tower {}", first) : fmt::format("towers {}-{}", first, last), rule(decided[i].first).reason);
    }
    return out;
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
  std::map<Hits, std::pair<int, std::string>> known_;
  std::vector<bool> decided_;              // per rule
  std::vector<DeviceList> devices_;        // per rule, found when it first decides
  std::vector<std::vector<int>> readers_;  // per value
};

}  // namespace

void assign(PlacedGraph& plan, std::size_t must_decide) {
  Assigner assigner(plan);
  assigner.run();
  assigner.check(must_decide);
}

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
