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
#include <belfry/placer/placer_internal.h>
#include <belfry/placer/requests.h>
#include <belfry/placer/scorer.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

constexpr std::size_t kKept = 4;  // tower graphs, each with what its placements share
constexpr double kFar = 2;        // times the best step: nobody looks near a strategy that takes longer

class Looker {
 public:
  Looker(const std::shared_ptr<const Graph>& graph, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) : graph_(graph), cluster_(cluster), batch_(batch), options_(options) {
    options_.warn = {};  // what is looked at is not yet taken
  }

  std::vector<Candidate> found;

  /// Where it does not fit as it is, with values computed again too, if `again`.
  void at(const Strategy& s, bool again) {
    if (!known_.insert(describe(s)).second) return;
    found.push_back(looked_at(s));
    if (!again || found.back().refused.empty() || !found.back().peak || options_.recompute.stretches) return;
    for (int stretches : {4, 16}) at(recomputing(s, stretches), false);
  }

  /// Of those that are worth a look around them and had none, the fastest.
  const Candidate* next() {
    std::map<std::string, const Candidate*> best;
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& c : found) {
      if (!c.refused.empty()) continue;
      const Candidate*& mine = best[c.strategy.name];
      if (!mine || c.seconds < mine->seconds) mine = &c;
      least = std::min(least, c.seconds);
    }
    const Candidate* out = nullptr;
    for (const auto& [name, c] : best)
      if (c->seconds <= kFar * least && !around_.contains(describe(c->strategy)) && (!out || c->seconds < out->seconds)) out = c;
    if (out) around_.insert(describe(out->strategy));
    return out;
  }

 private:
  struct Kept {
    std::tuple<int, Combine, int> key;
    TowerGraph towers;
    Scorer scorer;
  };

  /// The last few stay: candidates with as many towers mostly stand together.
  Kept& kept(const Division& d) {
    const std::tuple key(d.towers, d.combine, d.threads);
    auto at = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
    if (at != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, at);
    } else {
      kept_.push_front({key, expand_for(graph_, d, batch_, options_), Scorer(graph_, cluster_, options_.costs ? *options_.costs : CostTable{}, options_)});
      if (kept_.size() > kKept) kept_.pop_back();
    }
    return kept_.front();
  }

  /// As of its finished plan. Requests that may be left unmet need that plan itself.
  Score score_of(const Strategy& s) {
    if (options_.soft) {
      const PlacedGraph plan = place(graph_, s, cluster_, batch_, options_);
      Score out{forecast(plan, options_.costs ? *options_.costs : CostTable{}).seconds, {}, over_memory(plan)};
      for (const DeviceBytes& b : device_bytes(plan)) out.peak.push_back(b.total());
      return out;
    }
    const Division d = division_of(*graph_, s, cluster_);
    Kept& k = kept(d);
    auto [placement, rules] = decided_by(s, d, k.towers, cluster_, batch_, options_);
    placement.rules = all_rules(options_, requests_of(k.towers, cluster_, options_, {}).rules, rules);
    check_devices(k.towers, placement.rules, cluster_);
    return k.scorer(placement, options_.must_decide);
  }

  Candidate looked_at(const Strategy& s) {
    Candidate out{s, 0, 0, {}, {}, 0, {}};
    try {
      const Score score = score_of(s);
      out.lacking = std::numeric_limits<std::int64_t>::min();
      for (std::size_t d = 0; d < score.peak.size(); ++d) {
        if (score.peak[d] > out.peak) out.peak = score.peak[d], out.fullest = to_string(cluster_.devices[d].id);
        out.lacking = std::max(out.lacking, score.peak[d] - cluster_.devices[d].memory);
      }
      if (!score.over.empty()) out.refused = score.over.front();
      else out.seconds = score.step_seconds;
    } catch (const UserError& e) {
      out.refused = e.what();
    }
    return out;
  }

  std::shared_ptr<const Graph> graph_;
  const Cluster& cluster_;
  std::int64_t batch_;
  PlaceOptions options_;
  std::list<Kept> kept_;            // the latest first
  std::set<std::string> known_, around_;
};

/// What is taken, then by what lacks the least, then what cannot be placed at all.
bool before(const Candidate& a, const Candidate& b) {
  auto rank = [](const Candidate& c) { return c.refused.empty() ? 0 : c.peak ? 1 : 2; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  return rank(a) == 0 ? a.seconds < b.seconds : rank(a) == 1 && a.lacking < b.lacking;
}

}  // namespace

std::vector<Candidate> look_at(const std::shared_ptr<const Graph>& graph, const Strategy& choice, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  Looker look(graph, cluster, batch, options);
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
    out += c.refused.empty() ? fmt::format("{:{}}  {:9.3f} ms  {:8.1f} MiB on {}\n", describe(c.strategy), width, 1e3 * c.seconds, static_cast<double>(c.peak) / (1 << 20), c.fullest)
                             : fmt::format("{:{}}  refused: {}\n", describe(c.strategy), width, c.refused);
  return out;
}

}  // namespace belfry
