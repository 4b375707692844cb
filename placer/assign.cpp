#include <belfry/placer/assign.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

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
using Hits = std::span<const Hit>;

class Assigner {
 public:
  Assigner(PlacedGraph& plan, const std::vector<PlacementRule>& rules, const NodeNames& names, const NumberLists& readers)
      : plan_(plan), rules_(rules), whole_(rules_.size()), decided_(rules_.size()), listed_(rules_.size()),
        dealt_to_(plan.cluster.devices.size(), Dealt{-1, {}}),
        alone_(plan.cluster.devices.size()), readers_(readers), host_({plan.cluster.host()}) {
    find_exact(names);
  }

  void run() {
    std::vector<Hits> follow(plan_.values.size());
    std::vector<Hit> mine;
    all_.reserve(plan_.nodes.size() + rules_.size());
    std::vector<std::size_t> first;
    first.reserve(plan_.nodes.size() + 1);
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      first.push_back(all_.size());
      mine.clear();
      for (int k = exact_[i]; k >= 0; k = next_exact_[static_cast<std::size_t>(k)]) mine.push_back(exact_hits_[static_cast<std::size_t>(k)]);
      for (const auto& [hit, pattern] : globs_)
        if (whole_[static_cast<std::size_t>(hit.rule)] || glob_matches(pattern, plan_.nodes[i].name)) mine.push_back(hit);
      std::sort(mine.begin(), mine.end());
      all_.insert(all_.end(), mine.begin(), mine.end());
    }
    first.push_back(all_.size());
    const bool any_again = std::any_of(plan_.nodes.begin(), plan_.nodes.end(), [](const PlanNode& n) { return n.again; });
    std::map<NodeId, std::size_t> once;  // the nodes that may be computed again
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      PlanNode& n = plan_.nodes[i];
      Hits hits(all_.data() + first[i], all_.data() + first[i + 1]);
      // A node that is computed again goes with the first, one that expand put in goes with its source unless a rule speaks of it by name.
      if (n.again) {
        const std::size_t o = once.at(n.user);
        hits = {all_.data() + first[o], all_.data() + first[o + 1]};
        again_.emplace_back(i, o);
      } else if (n.inserted && !n.inputs.empty() && n.inputs[0] >= 0) {
        bool by_name = std::any_of(hits.begin(), hits.end(), [&](Hit h) { return !whole_[static_cast<std::size_t>(h.rule)]; });
        bool towers_apart = std::any_of(hits.begin(), hits.end(), [](Hit h) { return h.tower == -1; });
        if (!by_name && !towers_apart && plan_.value(n.inputs[0]).maker < static_cast<int>(i)) hits = follow[static_cast<std::size_t>(n.inputs[0])];
      }
      if (any_again && !n.inserted) once[n.user] = i;
      for (ValueIndex v : n.outputs) follow[static_cast<std::size_t>(v)] = hits;
      place(n, hits);
      if (n.scope == Scope::tower && !n.again && (is_op(n, kSplit) || (n.def && n.def->source)) && std::all_of(hits.begin(), hits.end(), [&](Hit h) { return h.tower == -2 && whole_[static_cast<std::size_t>(h.rule)]; })) loose_.push_back(i);
    }
    follow_readers();
  }

  void check(std::size_t must_decide) const {
    for (std::size_t i = 0; i < std::min(must_decide, rules_.size()); ++i) {
      auto [tower, rest] = split_match(rules_[i].match);
      if (!decided_[i] && rest != "**") refuse_idle(rules_[i].match, tower, rest);
    }
  }

 private:
  using Dealt = std::pair<int, DeviceList>;  // the number of a vector, the devices of the towers without rows

  /// What begins in the towers, and is named by no rule, goes with what reads it first: else what only a rule for all catches would be moved twice.
  void follow_readers() {
    bool moved = false;
    for (std::size_t i : loose_) {
      PlanNode& n = plan_.nodes[i];
      const PlanNode* first = nullptr;
      for (ValueIndex v : n.outputs)
        for (int r : readers_[static_cast<std::size_t>(v)])
          if (const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)]; reader.scope == Scope::tower && (!first || &reader < first)) first = &reader;
      if (first && (first->vector != n.vector || !(first->idle == n.idle))) n.vector = first->vector, n.idle = first->idle, n.reason = "with its first reader", moved = true;
    }
    for (auto [copy, original] : again_) {
      const PlanNode& first = plan_.nodes[original];
      plan_.nodes[copy].vector = first.vector, plan_.nodes[copy].idle = first.idle, plan_.nodes[copy].reason = first.reason;
    }
    if (moved) number_vectors();
  }

  /// By first use, as rules that name each node would have numbered them.
  void number_vectors() {
    std::vector<int> number(plan_.vectors.size(), -1);
    std::vector<std::vector<int>> vectors;
    for (PlanNode& n : plan_.nodes) {
      if (n.vector < 0) continue;
      int& k = number[static_cast<std::size_t>(n.vector)];
      if (k < 0) k = static_cast<int>(vectors.size()), vectors.push_back(plan_.vectors[static_cast<std::size_t>(n.vector)]);
      n.vector = k;
    }
    plan_.vectors = std::move(vectors);
  }

  /// Exact names by hash, a list per node; globs in order.
  void find_exact(const NodeNames& names) {
    exact_.assign(plan_.nodes.size(), -1);
    exact_hits_.reserve(rules_.size());
    next_exact_.reserve(rules_.size());
    std::string inner;
    int guess = 0;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      const PlacementRule& r = rules_[i];
      if (r.devices.empty()) throw UserError(fmt::format("the rule '{}' names no device", r.match));
      int tower = -2;
      const std::string* rest = &r.match;
      if (r.match.starts_with("tower_")) {
        std::tie(tower, inner) = split_match(r.match);
        rest = &inner;
        if (tower >= plan_.placement.towers) throw UserError(fmt::format("the rule '{}' speaks of tower {}, but there are {}: name one from 0 to {} (tower_* for all), or take more towers (--towers {})", r.match, tower, plan_.placement.towers, plan_.placement.towers - 1, tower + 1));
      }
      whole_[i] = *rest == "**";
      const Hit hit{static_cast<int>(i), tower};
      if (std::any_of(rest->begin(), rest->end(), [](char c) { return c == '*' || c == '?'; })) {
        globs_.emplace_back(hit, *rest);
        continue;
      }
      for (int node = names.find(*rest, guess); node >= 0; node = names.next(node)) {
        guess = node + 1;  // rules mostly name nodes in their order
        next_exact_.push_back(std::exchange(exact_[static_cast<std::size_t>(node)], static_cast<int>(exact_hits_.size())));
        exact_hits_.push_back(hit);
      }
    }
  }

  void place(PlanNode& n, Hits hits) {
    if (is_op(n, kInput) || is_op(n, kFetch)) {
      n.holders = host_;
      n.reason = is_op(n, kInput) ? "feeds live on the host" : "results live on the host";
    } else if (n.scope == Scope::tower) {
      set_vector(n, hits);
    } else {
      auto hit = std::find_if(hits.begin(), hits.end(), [](Hit h) { return h.tower == -2; });
      if (hit == hits.end()) refuse(n);
      n.holders = decide(hit->rule, !held_by_readers(n));
      n.reason = rule(hit->rule).reason;
      n.ranged = rule(hit->rule).ranges;
      n.sum = rule(hit->rule).sum;
      n.bucket = rule(hit->rule).bucket;
      if ((n.bucket || n.sum != SumWay::direct) && !is_op(n, kAggregate))
        throw UserError(fmt::format("the rule \"{}\" says how '{}' is added, but it is a {}, no aggregate; name the aggregates alone", rule(hit->rule).match, n.name, n.op));
      if (n.sum == SumWay::ring && !n.ranged)
        throw UserError(fmt::format("the rule \"{}\" adds '{}' round a ring, which goes over ranges: write \"ranges\": true beside it, or leave out \"sum\"", rule(hit->rule).match, n.name));
      if (n.holders.size() > 1 && std::set<int>(n.holders.begin(), n.holders.end()).size() != n.holders.size())
        throw UserError(fmt::format("the rule \"{}\" puts '{}' on one device twice; name each once", rule(hit->rule).match, n.name));
      if (std::string why = n.ranged ? objection_to_ranges(plan_, n, n.holders.get().size()) : ""; !why.empty())
        throw UserError(fmt::format("the rule \"{}\" puts '{}' in ranges, but it {}; name what can be, or leave out \"ranges\"", rule(hit->rule).match, n.name, why));
    }
  }

  /// The devices of a rule: those of rules that decide nothing need not be there.
  const DeviceList& decide(int i, bool counts) {
    auto at = static_cast<std::size_t>(i);
    if (counts) decided_[at] = true;
    const std::vector<DeviceId>& named = rules_[at].devices;
    if (named.size() == 1) return alone_[one(named[0])];
    if (!listed_[at]) {
      auto [known, fresh] = lists_.try_emplace(named);
      std::vector<int> devices;
      for (const DeviceId& id : named)
        if (fresh) devices.push_back(plan_.cluster.at(id));
      if (fresh) known->second.devices = std::move(devices);
      listed_[at] = &known->second;
    }
    return listed_[at]->devices;
  }

  /// A device, with the list of it alone. Neighbouring rules often name the same.
  std::size_t one(const DeviceId& id) {
    if (last_ >= alone_.size() || !(plan_.cluster.devices[last_].id == id)) last_ = static_cast<std::size_t>(plan_.cluster.at(id));
    if (alone_[last_].empty()) alone_[last_] = {static_cast<int>(last_)};
    return last_;
  }

  [[noreturn]] void refuse(const PlanNode& n) const {
    throw UserError(fmt::format("no rule of the placement matches '{}'; end it with {{\"match\": \"**\", \"device\": …}}", n.name));
  }

  /// What `hold_sources` puts beside its readers, whatever the rules say.
  bool held_by_readers(const PlanNode& n) const {
    return n.scope == Scope::shared && n.def && n.def->source && std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return !readers_[static_cast<std::size_t>(v)].empty(); });
  }

  /// "layer/**" for a rule that lacks this end, or whose path is near to a layer's; a layer is what stands before a '/' of names.
  std::vector<std::string> near_layers(const std::string& towers, std::string rest, const std::vector<std::string>& names) const {
    if (rest.ends_with("/**")) rest.resize(rest.size() - 3);
    std::set<std::string> layers;
    for (const std::string& n : names)
      for (std::size_t at = n.find('/'); at != n.npos; at = n.find('/', at + 1)) layers.insert(n.substr(0, at));
    std::vector<std::string> out = layers.contains(rest) ? std::vector{rest} : near_names(rest, {layers.begin(), layers.end()});
    for (std::string& layer : out) layer = towers + layer + "/**";
    return out;
  }

  /// Says why a rule decides nothing.
  [[noreturn]] void refuse_idle(const std::string& match, int tower, const std::string& rest) const {
    const std::string towers = match.substr(0, match.size() - rest.size());
    std::vector<std::string> names, all;  // near ones that a rule may give, with the towers it speaks of; all of them
    std::string result;                   // a near one that no rule decides
    for (const PlanNode& n : plan_.nodes) {
      for (const Member& m : n.members)
        if (const std::string& inner = plan_.graph->node(m.node).name; inner != n.name && glob_matches(rest, inner))
          throw UserError(fmt::format("the rule \"{}\" speaks of '{}', which is computed inside the fused node '{}': move that one", match, inner, n.name));
      const bool near = !near_names(rest, {n.name}).empty();
      if (near && is_op(n, kFetch)) result = n.name;
      if ((tower == -2 || n.scope == Scope::tower) && !is_op(n, kInput) && !is_op(n, kFetch) && !held_by_readers(n)) {
        all.push_back(n.name);
        if (near) names.push_back(towers + n.name);
      }
      if (!glob_matches(rest, n.name)) continue;
      if (tower != -2 && n.scope != Scope::tower) throw UserError(fmt::format("the rule \"{}\" speaks of towers, but '{}' runs outside them: write \"{}\"", match, n.name, rest));
      std::string why = n.again              ? "is computed again where it was computed first; move that"
                        : is_op(n, kInput)   ? "is an input: feeds live on the host; move what reads it"
                        : is_op(n, kFetch)   ? "is a result: results live on the host"
                        : held_by_readers(n) ? "is a source, which is computed where it is read; move what reads it"
                                             : fmt::format("is decided by a rule before it ({}); take one of the two out", n.reason);
      throw UserError(fmt::format("the rule \"{}\" decides nothing: '{}' {}", match, n.name, why));
    }
    std::vector<std::string> near = near_names(match, names);
    const std::vector<std::string> layers = near_layers(towers, rest, all);
    if (!layers.empty() && (near.empty() || rest.ends_with("/**") || layers[0] == match + "/**")) near = layers;
    std::string meant = near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", "));
    if (near.empty() && !result.empty()) meant = fmt::format("; '{}' is a result: results live on the host", result);
    throw UserError(fmt::format("the rule \"{}\" matches no node{}; name one of '{}', or take the rule out: it may be of another graph", match, meant, plan_.graph->name));
  }

  void set_vector(PlanNode& n, Hits hits) {
    if (std::none_of(hits.begin(), hits.end(), [](Hit h) { return h.tower < 0; })) refuse(n);
    if (hits.front().tower < 0) {  // it decides for all towers
      std::tie(n.vector, n.idle) = dealt(hits.front().rule);
      n.reason = rule(hits.front().rule).reason;
      return;
    }
    auto [known, fresh] = known_.try_emplace(std::vector<Hit>(hits.begin(), hits.end()));
    if (fresh) known->second = vector_of(hits);
    std::tie(n.vector, n.idle, n.reason) = known->second;
  }

  std::tuple<int, DeviceList, std::string> vector_of(Hits hits) {
    std::vector<int> out(static_cast<std::size_t>(plan_.placement.towers), -1);
    std::vector<std::pair<int, int>> decided;  // runs of towers by rule: its number, the run's first tower
    for (int t = 0; t < plan_.placement.towers; ++t) {
      auto hit = std::find_if(hits.begin(), hits.end(), [&](Hit h) { return h.tower < 0 || h.tower == t; });
      if (decided.empty() || rule(decided.back().first).reason != rule(hit->rule).reason) decided.emplace_back(hit->rule, t);
      out[static_cast<std::size_t>(t)] = dealt(decide(hit->rule, true), t);
    }
    return std::tuple_cat(cut(std::move(out)), std::tuple(reason_of(decided)));
  }

  /// The vector, without the devices of the towers that have no rows; those.
  Dealt cut(std::vector<int> devices) {
    const auto idle = devices.begin() + plan_.present();
    DeviceList without = idle == devices.end() ? DeviceList() : DeviceList(std::vector<int>(idle, devices.end()));
    std::fill(idle, devices.end(), -1);
    return {vector_number(plan_, std::move(devices)), std::move(without)};
  }

  /// The vector of what one rule decides, and the devices of the towers without rows.
  const Dealt& dealt(int i) {
    const std::vector<int>& devices = decide(i, true);
    Dealt& known = devices.size() == 1 ? dealt_to_[static_cast<std::size_t>(devices[0])] : listed_[static_cast<std::size_t>(i)]->dealt;
    if (known.first >= 0) return known;
    std::vector<int> out(static_cast<std::size_t>(plan_.placement.towers), -1);
    for (int t = 0; t < plan_.placement.towers; ++t) out[static_cast<std::size_t>(t)] = dealt(devices, t);
    return known = cut(std::move(out));
  }

  const PlacementRule& rule(int i) const { return rules_[static_cast<std::size_t>(i)]; }

  /// One reason for all towers, or "towers 0-2: a; tower 3: b".
  std::string reason_of(const std::vector<std::pair<int, int>>& decided) const {
    if (decided.size() == 1) return rule(decided[0].first).reason;
    std::string out;
    for (std::size_t i = 0; i < decided.size(); ++i) {
      int first = decided[i].second, last = (i + 1 < decided.size() ? decided[i + 1].second : plan_.placement.towers) - 1;
      out += fmt::format("{}{}: {}", i ? "; " : "", first == last ? fmt::format("tower {}", first) : fmt::format("towers {}-{}", first, last), rule(decided[i].first).reason);
    }
    return out;
  }

  /// Contiguous shares of the towers; the first T mod D devices have one more.
  int dealt(const std::vector<int>& devices, int tower) const {
    return devices[static_cast<std::size_t>(share_with(plan_.placement.towers, static_cast<std::int64_t>(devices.size()), tower))];
  }

  PlacedGraph& plan_;
  const std::vector<PlacementRule>& rules_;
  std::vector<bool> whole_;                         // per rule, whether it speaks of everything
  std::vector<std::pair<Hit, std::string>> globs_;
  std::vector<int> exact_, next_exact_;             // per node its last exact hit, per hit the one before
  std::vector<Hit> exact_hits_, all_;
  std::map<std::vector<Hit>, std::tuple<int, DeviceList, std::string>> known_;
  std::vector<bool> decided_;                       // per rule
  std::vector<std::size_t> loose_;                  // nodes that follow their readers
  std::vector<std::pair<std::size_t, std::size_t>> again_;  // what is computed again, and the first
  struct Listed {
    DeviceList devices;
    Dealt dealt{-1, {}};                            // of nodes that one rule decides
  };
  std::map<std::vector<DeviceId>, Listed> lists_;   // many rules name the same devices
  std::vector<Listed*> listed_;                     // per rule, found when it first decides
  std::vector<Dealt> dealt_to_;                     // the same where a rule names one device
  std::vector<DeviceList> alone_;                   // per device
  std::size_t last_ = 0;
  const NumberLists& readers_;
  DeviceList host_;
};

}  // namespace

NodeNames::NodeNames(const TowerGraph& graph) : next_(graph.nodes.size(), -1), first_(graph.nodes.size()) {
  known_.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    auto [at, fresh] = known_.try_emplace(graph.nodes[i].name, node, node);
    if (fresh) first_[i] = &at->first;
    else next_[static_cast<std::size_t>(std::exchange(at->second.second, node))] = node;
  }
}

int NodeNames::find(const std::string& name, int guess) const {
  if (guess >= 0 && guess < static_cast<int>(first_.size()) && first_[static_cast<std::size_t>(guess)] && *first_[static_cast<std::size_t>(guess)] == name) return guess;
  auto at = known_.find(name);
  return at == known_.end() ? -1 : at->second.first;
}

void assign(PlacedGraph& plan, const std::vector<PlacementRule>& rules, const NodeNames& names, const NumberLists& readers, std::size_t must_decide) {
  Assigner assigner(plan, rules, names, readers);
  assigner.run();
  assigner.check(must_decide);
}

int vector_number(PlacedGraph& plan, std::vector<int> devices) {
  auto at = std::find(plan.vectors.begin(), plan.vectors.end(), devices);
  auto out = static_cast<int>(at - plan.vectors.begin());
  if (at == plan.vectors.end()) plan.vectors.push_back(std::move(devices));
  return out;
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
