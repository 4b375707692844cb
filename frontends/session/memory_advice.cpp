#include <belfry/frontends/session/memory_advice.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>

namespace belfry {

namespace {

/// Nodes that are placed in search of advice, at the most, but some tries in any case.
constexpr std::size_t kMostNodes = 200'000, kLeastTries = 16, kMostTries = 80;
constexpr std::size_t kElsewhere = 4;  // tries that are kept for devices of other kinds
constexpr int kMostTowers = 1024;
constexpr std::size_t kEnough = 2;  // combinations that are named

using Options = std::map<std::string, std::string>;

/// What a command line says of a placement.
struct Setup {
  std::string strategy;
  std::vector<DeviceId> devices;
  Options options;
  int recompute = 0;
  std::int64_t batch = 1;
};

std::string option_text(const std::string& name, const std::string& value) {
  return name == "towers" || name == "threads" ? fmt::format("--{} {}", name == "threads" ? "threads-per-tower" : name, value) : fmt::format("-O {}={}", name, value);
}

/// What is to be put beside `from`, or in the place of what it has, and what is to go.
std::string changes(const Setup& from, const Setup& to) {
  std::vector<std::string> with, without;
  if (to.strategy != from.strategy) with.push_back("--strategy " + to.strategy);
  if (to.devices != from.devices) with.push_back("--devices " + to_string(to.devices));
  for (const auto& [name, value] : to.options)
    if (auto had = from.options.find(name); had == from.options.end() || had->second != value) with.push_back(option_text(name, value));
  if (to.recompute != from.recompute) with.push_back(fmt::format("--recompute {}", to.recompute));
  if (to.batch != from.batch) with.push_back(fmt::format("--batch {}", to.batch));
  for (const auto& [name, value] : from.options)
    if (!to.options.contains(name)) without.push_back(option_text(name, value));
  return fmt::format("{}{}{}", fmt::join(with, " "), without.empty() ? "" : ", without ", fmt::join(without, " "));
}

class Adviser {
 public:
  Adviser(const RefusedPlan& refused, const std::vector<StrategyDef>& known, const TryPlan& attempt)
      : refused_(refused), plan_(refused.plan), own_(refused.made_by), known_(known), attempt_(attempt),
        left_(std::clamp(kMostNodes / std::max<std::size_t>(plan_.nodes.size(), 1), kLeastTries, kMostTries)),
        spared_(kElsewhere + std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(plan_.batch, 1))), kLeastTries / 2)) {
    base_ = setup_of(own_);
    if (own_.given && own_.given->recompute) base_.recompute = own_.given->recompute;
    asked_ = chose() ? setup_of(refused.asked) : base_;
  }

  std::vector<std::string> run() {
    if (own_.divide) {
      if (plan_.placement.order == PhaseOrder::gpipe) try_one(with(base_, "order", "1f1b"));
      more_towers();
      other_variables();
      for (const Setup& s : alternatives(base_.devices)) try_one(s);
      more_devices();
      recomputed(base_);
      if (out_.empty()) combined();
    }
    spared_ = kElsewhere;
    smaller_batch();
    spared_ = 0;
    if (own_.divide) elsewhere();
    return out_;
  }

 private:
  Setup setup_of(const Strategy& s) const {
    Setup out{s.name, {}, {}, refused_.recompute, plan_.batch};
    if (s.given) return {s.name, s.given->devices, s.given->options, refused_.recompute, plan_.batch};
    for (std::size_t d = 0; d < plan_.cluster.devices.size(); ++d)
      if (runs_towers(static_cast<int>(d))) out.devices.push_back(plan_.cluster.devices[d].id);
    if (!s.divide) return out;
    const Division d = s.divide(*plan_.graph, plan_.cluster);
    if (d.combine != Combine{}) out.options["combine"] = to_string(d.combine);
    if (d.threads) out.options["threads"] = std::to_string(d.threads);
    return out;
  }
  bool runs_towers(int device) const {
    return std::any_of(plan_.nodes.begin(), plan_.nodes.end(), [&](const PlanNode& n) {
      if (n.scope != Scope::tower) return false;
      const std::vector<int>& on = plan_.devices(n);
      return std::find(on.begin(), on.end(), device) != on.end();
    });
  }

  const StrategyDef* known(const std::string& name) const {
    auto at = std::find_if(known_.begin(), known_.end(), [&](const StrategyDef& s) { return s.name == name; });
    return at == known_.end() ? nullptr : &*at;
  }

  /// One that was not made by name can have other towers, and another order of phases.
  std::optional<Strategy> strategy_of(const Setup& s) const {
    if (chose() && s.strategy == refused_.asked.name) return refused_.asked;
    if (own_.divide && (own_.given || s.strategy != base_.strategy || s.options.contains("variables"))) {
      const StrategyDef* def = known(s.strategy);
      return def ? std::optional(def->make(s.devices, s.options)) : std::nullopt;
    }
    if (s.devices != base_.devices) return {};
    Strategy out = own_;
    if (!own_.divide || s.options == base_.options) return out;
    out.divide = [own = own_, options = s.options](const Graph& g, const Cluster& c) {
      Division d = own.divide(g, c);
      if (auto towers = options.find("towers"); towers != options.end()) d.towers = std::stoi(towers->second);
      if (options.contains("order")) d.order = PhaseOrder::one_f_one_b;
      return d;
    };
    return out;
  }

  bool chose() const { return &refused_.asked != &own_; }

  std::optional<PlacedGraph> plan_for(const Setup& s) {
    --left_;
    try {
      if (const std::optional<Strategy> strategy = strategy_of(s)) return attempt_(*strategy, s.batch, s.recompute);
    } catch (const UserError&) {  // options that this strategy does not take
    }
    return {};
  }

  bool try_one(const Setup& s) {
    const std::string text = changes(asked_, s);
    if (left_ <= spared_ || text.empty() || !tried_.insert(text).second) return false;
    const std::optional<PlacedGraph> plan = plan_for(s);
    if (!plan) return false;
    std::vector<DeviceBytes> bytes = device_bytes(*plan);
    auto most = std::max_element(bytes.begin(), bytes.end(), [](const DeviceBytes& a, const DeviceBytes& b) { return a.total() < b.total(); });
    out_.push_back(fmt::format("{} (at most {} bytes{}, on {})", text, most->total(), in_gib(most->total()), to_string(plan->cluster.devices[static_cast<std::size_t>(most - bytes.begin())].id)));
    return true;
  }

  static Setup with(Setup s, const std::string& option, const std::string& value) {
    s.options[option] = value;
    return s;
  }
  static Setup with_recompute(Setup s, int stretches) {
    s.recompute = std::max(s.recompute, stretches);
    return s;
  }
  int towers_of(const Setup& s) const {
    auto at = s.options.find("towers");
    return at != s.options.end() ? std::stoi(at->second) : plan_.towers;
  }
  /// One after the other on the same devices.
  Setup times_towers(const Setup& s, int times) const { return with(s, "towers", std::to_string(std::min<std::int64_t>({towers_of(s) * std::int64_t{times}, plan_.batch, kMostTowers}))); }

  bool more_towers() {
    for (int times = 2; plan_.towers * times <= std::min<std::int64_t>(plan_.batch, kMostTowers); times *= 2)
      if (try_one(times_towers(base_, times))) return true;
    return false;
  }

  bool other_variables() {
    if (base_.strategy != "towers" || !known("towers")) return false;
    std::vector<std::string> where = {"cpu:0"};
    if (base_.devices.size() > 1) where.insert(where.begin(), "spread");
    for (const ClusterDevice& d : plan_.cluster.devices)
      if (where.size() < 6 && d.id != cpu(0)) where.push_back(to_string(d.id));
    return std::any_of(where.begin(), where.end(), [&](const std::string& w) { return try_one(with(base_, "variables", w)); });
  }

  /// The options that every strategy takes.
  void keep_given(Setup& s) const {
    for (const char* kept : {"combine", "threads"})
      if (auto at = base_.options.find(kept); at != base_.options.end()) s.options.insert(*at);
  }

  /// By other strategies, with what was given that they take too.
  std::vector<Setup> alternatives(const std::vector<DeviceId>& devices) const {
    std::vector<Setup> out;
    if (base_.strategy == "placement") return out;  // a placement file stands for all of its options
    for (const char* name : {"sharded", "towers", "layers", "pipeline"}) {
      const StrategyDef* def = known(name);
      if (!def || base_.strategy == name || (devices.size() < 2 && (std::string(name) != "towers" || devices[0] == cpu(0)))) continue;  // one device has the host for its variables
      const auto n = static_cast<std::int64_t>(devices.size());
      const std::int64_t towers = std::string(name) == "layers" ? 1 : std::string(name) == "pipeline" ? 2 * n : std::max<std::int64_t>(n, plan_.towers);
      Setup s{name, devices, {{"towers", std::to_string(std::min(towers, std::max<std::int64_t>(plan_.batch, 1)))}}, base_.recompute, base_.batch};
      keep_given(s);
      out.push_back(std::move(s));
    }
    return out;
  }

  bool of_kinds_in_use(const DeviceId& d) const {
    return std::any_of(base_.devices.begin(), base_.devices.end(), [&](const DeviceId& mine) { return mine.kind == d.kind; });
  }
  /// With the cluster's other devices of the same kinds, or of any kind, if it has any.
  std::vector<Setup> over_all_devices(bool any_kind = false) const {
    std::vector<DeviceId> all = base_.devices;
    for (const ClusterDevice& d : plan_.cluster.devices)
      if (std::find(all.begin(), all.end(), d.id) == all.end() && (any_kind || of_kinds_in_use(d.id))) all.push_back(d.id);
    if (all.size() == base_.devices.size()) return {};
    std::vector<Setup> out = alternatives(all);
    if (base_.strategy == "single" || !known(base_.strategy)) return out;
    Setup own = base_;
    own.devices = all;
    own.options["towers"] = std::to_string(std::max<std::int64_t>(plan_.towers, std::min<std::int64_t>(plan_.batch, std::ssize(all))));
    out.insert(out.begin(), std::move(own));
    return out;
  }
  bool more_devices() {
    bool found = false;
    for (const Setup& s : over_all_devices()) found = try_one(s) || found;
    return found;
  }

  /// All on the device of another kind that has the most memory, which may be the host.
  std::optional<Setup> alone_elsewhere() const {
    const ClusterDevice* most = nullptr;
    for (const ClusterDevice& d : plan_.cluster.devices)
      if (!of_kinds_in_use(d.id) && (!most || d.memory > most->memory)) most = &d;
    if (!most || base_.strategy == "placement" || !known("single")) return {};
    Setup out{"single", {most->id}, {}, base_.recompute, base_.batch};
    if (plan_.towers > 1) out.options["towers"] = std::to_string(plan_.towers);
    keep_given(out);
    return out;
  }
  void elsewhere() {
    if (const std::optional<Setup> s = alone_elsewhere(); s && !try_one(*s) && out_.empty()) try_one(with_recompute(times_towers(*s, 4), 16));
    if (!out_.empty()) return;
    for (const Setup& s : over_all_devices(true))
      if (try_one(s)) return;
  }

  bool recomputed(const Setup& s) {
    for (int stretches : {4, 16, 64})
      if (stretches > s.recompute && try_one(with_recompute(s, stretches))) return true;
    return false;
  }

  /// Its own way, then others, over these devices, then over all.
  std::vector<Setup> ways() const {
    std::vector<Setup> out = {base_};
    for (const std::vector<Setup>& more : {alternatives(base_.devices), over_all_devices()}) out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  void combined() {
    for (const Setup& way : ways())
      for (auto [stretches, times] : {std::pair(0, 4), std::pair(16, 1), std::pair(16, 4), std::pair(16, 32)}) {
        if (out_.size() == kEnough) return;
        if (try_one(with_recompute(times_towers(way, times), stretches))) break;
      }
  }

  /// Where a choice was asked for, with what it lacked the least: if that fits, it has something that does.
  void smaller_batch() {
    auto halved = [&](Setup s, int by) {
      while (s.batch > 1) {
        s.batch = std::max<std::int64_t>(1, s.batch / by);
        if (!chose()) {
          if (try_one(s)) return true;
          continue;
        }
        if (left_ <= spared_ || !plan_for(s)) continue;
        Setup asked = asked_;
        asked.batch = s.batch;
        return try_one(asked);
      }
      return false;
    };
    if (halved(base_, 2) || !out_.empty() || !own_.divide) return;
    for (const Setup& way : ways())
      if (halved(with_recompute(way, 16), 4)) return;
  }

  const RefusedPlan& refused_;
  const PlacedGraph& plan_;
  const Strategy& own_;
  const std::vector<StrategyDef>& known_;
  const TryPlan& attempt_;
  std::size_t left_, spared_;  ///< tries, and those of them that are kept for what comes last
  Setup base_, asked_;  ///< what made the plan, and what was asked for
  std::set<std::string> tried_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> memory_advice(const RefusedPlan& refused, const std::vector<StrategyDef>& known, const TryPlan& attempt) { return Adviser(refused, known, attempt).run(); }

std::string tensors_at_peak(const PlacedGraph& refused) {
  const Forecast f = forecast(refused);
  const DeviceForecast* fullest = nullptr;
  auto room = [&](const DeviceForecast& d) { return refused.cluster.devices[static_cast<std::size_t>(d.device)].memory - d.bytes; };
  for (const DeviceForecast& d : f.devices)  // the list is kept for the first of devices that hold the same
    if (!d.peak.empty() && (!fullest || std::pair(room(d), -d.bytes) < std::pair(room(*fullest), -fullest->bytes))) fullest = &d;
  if (!fullest) return "";
  std::string out;
  for (const auto& [name, bytes] : fullest->peak) out += fmt::format("{}{} {}{}", out.empty() ? "" : ", ", name, bytes, in_gib(bytes));
  return fmt::format("on {}: {}", to_string(refused.cluster.devices[static_cast<std::size_t>(fullest->device)].id), out);
}

}  // namespace belfry
