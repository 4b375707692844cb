#include <belfry/placer/choose.h>

#include <algorithm>
#include <limits>
#include <list>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/cut/launches.h>
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/requests.h>
#include <belfry/placer/scorer.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

constexpr std::size_t kKept = 4;  // tower graphs, each with what its placements share
constexpr std::size_t kMany = 64;  // devices: of more, not all candidates are forecast to their end
/// Times the best step: nobody looks near a strategy that takes longer.
double far(const Cluster& cluster) { return cluster.devices.size() <= kMany ? 2 : 1.2; }

/// Operations of the towers' nodes in a step.
double flops_of(const TowerGraph& towers) {
  PlacedGraph plan;
  static_cast<TowerGraph&>(plan) = towers;
  std::map<std::int64_t, std::pair<Share, int>> shares;  // by rows: one of them, and how many
  for (int t = 0; t < towers.present(); ++t) ++shares.try_emplace(towers.share(t).rows, towers.share(t), 0).first->second.second;
  double out = 0;
  for (const PlanNode& n : towers.nodes)
    if (n.scope == Scope::tower)
      for (const auto& [rows, share] : shares) out += share.second * work_of(plan, n, share.first, 0).flops;
  return out;
}

/// What all devices of these rules, and the host, compute in a second at the most. Infinite where a measured time may go below what is said.
double peak_of(const Rules& rules, const Cluster& cluster, int threads, bool measured) {
  std::set<int> devices = {cluster.host()};
  const std::vector<DeviceId>* last = nullptr;  // neighbours often name the same
  for (const PlacementRule& r : rules) {
    if (!last || r.devices != *last)
      for (const DeviceId& id : r.devices)
        if (const int d = cluster.find(id); d >= 0) devices.insert(d);
    last = &r.devices;
  }
  double out = 0;
  for (int d : devices) {
    const ClusterDevice& device = cluster.devices[static_cast<std::size_t>(d)];
    const DeviceRate rate = rate_of(device, threads);
    if (measured && rate.guessed) return std::numeric_limits<double>::infinity();
    out += std::max({rate.flops, rate.flops_tf32, rate.flops_half}) * (device.id.kind == "gpu" ? 1 : device.streams);  // a GPU computes one kernel at a time
  }
  return out;
}

/// As fast for all where there is no such step: each strategy is then refused by itself.
SecondsOf seconds_of(const std::shared_ptr<const Graph>& graph, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options, const CostTable& costs) {
  std::shared_ptr<Launches> launches;
  int nodes = 0;
  try {
    TowerGraph one = expand_for(graph, division_of(*graph, to_strategy(Single{}), cluster), batch, options);
    nodes = static_cast<int>(one.nodes.size());
    launches = std::make_shared<Launches>(std::move(one), cluster, costs);
  } catch (const UserError&) {
  }
  return [launches, nodes, &cluster](const DeviceId& device) {
    double out = 0;
    const int number = cluster.find(device);
    if (number < 0) return out;  // what is placed there is refused by itself
    for (int i = 0; i < nodes; ++i) out += launches->seconds(i, number);
    return out;
  };
}

class Looker {
 public:
  Looker(const std::shared_ptr<const Graph>& graph, const Choice& choice, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options)
      : graph_(graph), choice_(choice), cluster_(cluster), batch_(batch), options_(options) {
    options_.warn = {};  // what is looked at is not yet taken
    of_scores_ = options_;
    of_scores_.recompute = {};  // placements name the nodes
  }

  std::vector<Candidate> found;

  /// Where it does not fit as it is, with values computed again and with smaller towers too, if `again`.
  void at(const Strategy& s, bool again) {
    if (!look(s) || !again || !lacks_memory() || out_of_reach()) return;
    const std::vector<int> all_stretches = options_.recompute.stretches ? std::vector<int>{} : std::vector<int>{4, 16};
    for (int stretches : all_stretches) look(recomputing(s, stretches));
    bool fits = fits_smaller(s);
    for (int stretches : all_stretches) fits = fits || fits_smaller(recomputing(s, stretches));
  }

  /// Of those that are worth a look around them and had none, the fastest.
  const Candidate* next() {
    const Candidate* out = nullptr;
    for (const auto& [name, at] : best_)
      if (const Candidate* c = &found[at]; c->seconds <= far(cluster_) * least_ && !around_.contains(describe(c->strategy)) && (!out || c->seconds < out->seconds)) out = c;
    if (out) around_.insert(describe(out->strategy));
    return out;
  }

 private:
  /// False: it was looked at before.
  bool look(const Strategy& s) {
    if (!known_.insert(describe(s)).second) return false;
    found.push_back(looked_at(s));
    if (const Candidate& c = found.back(); c.refused.empty() && !c.bound) {
      auto [at, fresh] = best_.try_emplace(s.name, found.size() - 1);
      if (c.seconds < found[at->second].seconds) at->second = found.size() - 1;
      least_ = std::min(least_, c.seconds);
    }
    return true;
  }

  /// Until towers have a row each: more of them have none.
  bool fits_smaller(const Strategy& s) {
    std::optional<Strategy> at = s;
    while (division_of(*graph_, *at, cluster_).towers < batch_ && (at = smaller(*at)) && look(*at))
      if (!lacks_memory()) return true;
    return false;
  }

  /// Whatever would make it fit: computing again takes longer, and towers save no more than what a device runs at once. Of cuts they shorten the bubble.
  bool out_of_reach() const {
    const Candidate& c = found.back();
    int streams = 1;
    for (const ClusterDevice& d : cluster_.devices) streams = std::max(streams, d.streams);
    return c.strategy.name != "layers" && c.strategy.name != "pipeline" && c.strategy.name != "hybrid" && c.seconds > far(cluster_) * streams * least_;
  }

  bool lacks_memory() const { return !found.back().refused.empty() && found.back().peak; }
  std::optional<Strategy> smaller(const Strategy& s) const { return choice_.smaller ? choice_.smaller(s) : std::nullopt; }

  struct Kept {
    std::tuple<int, Combine, int> key;
    TowerGraph towers;
    double flops;
    Scorer scorer;
  };

  /// The last few stay: candidates with as many towers mostly stand together.
  Kept& kept(const Division& d) {
    const std::tuple key(d.towers, d.combine, d.threads);
    auto at = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
    if (at != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, at);
    } else {
      TowerGraph towers = expand_for(graph_, d, batch_, options_);
      const double flops = cluster_.devices.size() > kMany ? flops_of(towers) : 0;
      kept_.push_front({key, std::move(towers), flops, Scorer(graph_, cluster_, options_.costs ? *options_.costs : CostTable{}, of_scores_)});
      if (kept_.size() > kKept) kept_.pop_back();
    }
    return kept_.front();
  }

  /// What takes longer is neither the best of its strategy nor one to look near.
  double limit(const std::string& name) const {
    if (cluster_.devices.size() <= kMany) return std::numeric_limits<double>::infinity();
    const auto mine = best_.find(name);
    return std::min(far(cluster_) * least_, mine == best_.end() ? std::numeric_limits<double>::infinity() : found[mine->second].seconds);
  }

  /// As of its finished plan, or seconds above the limit that it takes at least, without bytes where it was not placed. Requests that may be
  /// left unmet need that plan itself.
  Score score_of(const Strategy& s, double limit) {
    if (options_.soft) {
      const PlacedGraph plan = place(graph_, s, cluster_, batch_, options_);
      return {forecast(plan, options_.costs ? *options_.costs : CostTable{}).seconds, total_bytes(plan), over_memory(plan)};
    }
    const Division d = division_of(*graph_, s, cluster_);
    Kept& k = kept(d);
    std::optional<Score> first;
    MemoryTold told(s, cluster_);
    do {
      auto [placement, rules] = decided_by(s, d, k.towers, told.cluster(), batch_, options_);
      if (!told.is_new(rules)) continue;
      placement.rules = all_rules(options_, requests_of(k.towers, cluster_, options_, {}).rules, rules);
      check_devices(k.towers, placement.rules, cluster_);
      if (limit < std::numeric_limits<double>::infinity()) {
        const double least = k.flops / peak_of(placement.rules, cluster_, d.threads, options_.costs && !options_.costs->empty());
        if (least > limit) return first.value_or(Score{least, {}, {}});
      }
      Score out = k.scorer(placement, options_.must_decide, limit);
      if (out.over.empty()) return out;
      told.lacks(rules, out.peak);
      if (!first) first = std::move(out);
    } while (told.tighten());
    return *first;
  }

  Candidate looked_at(const Strategy& s) {
    Candidate out{s, 0, false, 0, {}, {}, 0, {}};
    try {
      const double most = limit(s.name);
      const Score score = score_of(s, most);
      out.lacking = std::numeric_limits<std::int64_t>::min();
      for (std::size_t d = 0; d < score.peak.size(); ++d) {
        if (score.peak[d] > out.peak) out.peak = score.peak[d], out.fullest = to_string(cluster_.devices[d].id);
        out.lacking = std::max(out.lacking, score.peak[d] - cluster_.devices[d].memory);
      }
      out.seconds = score.step_seconds;
      if (!score.over.empty()) out.refused = score.over.front();
      else out.bound = score.step_seconds > most;
    } catch (const UserError& e) {
      out.refused = e.what();
    }
    return out;
  }

  std::shared_ptr<const Graph> graph_;
  const Choice& choice_;
  const Cluster& cluster_;
  std::int64_t batch_;
  PlaceOptions options_, of_scores_;
  std::list<Kept> kept_;            // the latest first
  std::set<std::string> known_, around_;
  std::map<std::string, std::size_t> best_;  // of each strategy, the number of the fastest found
  double least_ = std::numeric_limits<double>::infinity();
};

/// What is taken, then by what lacks the least, then what cannot be placed at all.
bool before(const Candidate& a, const Candidate& b) {
  auto rank = [](const Candidate& c) { return c.refused.empty() ? 0 : c.peak ? 1 : 2; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  return rank(a) == 0 ? a.seconds < b.seconds : rank(a) == 1 && a.lacking < b.lacking;
}

}  // namespace

std::vector<Candidate> look_at(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  const CostTable nothing;
  const Choice choice = strategy.choice(seconds_of(graph, cluster, batch, options, options.costs ? *options.costs : nothing));
  if (choice.candidates.empty()) throw UserError(fmt::format("strategy {} has nothing to choose from: give it devices, .devices = parse_devices(\"cpu:0,cpu:1\")", strategy.name));
  Looker look(graph, choice, cluster, batch, options);
  for (const Strategy& s : choice.candidates) look.at(s, true);
  while (choice.near) {
    const Candidate* c = look.next();
    if (!c) break;
    for (const Strategy& s : choice.near(c->strategy)) look.at(s, false);
  }
  std::vector<Candidate> out = std::move(look.found);
  std::stable_sort(out.begin(), out.end(), before);
  if (!out.empty() && (out.front().refused.empty() || out.front().peak)) out.front().plan = std::make_shared<PlacedGraph>(place(graph, out.front().strategy, cluster, batch, options));
  return out;
}

std::vector<Candidate> choose(const std::shared_ptr<const Graph>& graph, const Strategy& choice, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  std::vector<Candidate> out = look_at(graph, choice, cluster, batch, options);
  if (out.empty() || !out.front().refused.empty()) throw UserError("no strategy can be taken:\n" + describe(out));
  return out;
}

std::string describe(const Strategy& s) { return s.options.empty() ? s.name : s.name + " " + s.options; }

std::string describe(const std::vector<Candidate>& candidates) {
  std::size_t width = 8;
  for (const Candidate& c : candidates) width = std::max(width, describe(c.strategy).size());
  std::string out = fmt::format("{:{}}  {:>12}  {:>12}\n", "strategy", width, "step", "peak");
  for (const Candidate& c : candidates)
    out += c.bound ? fmt::format("{:{}}  {:9.3f} ms at least\n", describe(c.strategy), width, 1e3 * c.seconds)
           : c.refused.empty() ? fmt::format("{:{}}  {:9.3f} ms  {:8.1f} MiB on {}\n", describe(c.strategy), width, 1e3 * c.seconds, static_cast<double>(c.peak) / (1 << 20), c.fullest)
                               : fmt::format("{:{}}  refused: {}\n", describe(c.strategy), width, c.refused);
  return out;
}

}  // namespace belfry
