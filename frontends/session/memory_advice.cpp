#include <belfry/frontends/session/memory_advice.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

/// Nodes that are placed in search of advice, at the most, but some tries in any case.
constexpr std::size_t kMostNodes = 200'000, kLeastTries = 6, kMostTries = 40;

class Adviser {
 public:
  Adviser(const PlacedGraph& refused, const Strategy& strategy, const std::vector<StrategyDef>& known, const TryPlan& attempt)
      : refused_(refused), strategy_(strategy), known_(known), attempt_(attempt), left_(std::clamp(kMostNodes / std::max<std::size_t>(refused.nodes.size(), 1), kLeastTries, kMostTries)) {
    std::vector<bool> runs(refused.cluster.devices.size());
    for (const PlanNode& n : refused.nodes)
      if (n.scope == Scope::tower)
        for (int d : refused.devices(n))
          if (d >= 0) runs[static_cast<std::size_t>(d)] = true;
    for (std::size_t d = 0; d < runs.size(); ++d)
      if (runs[d]) devices_.push_back(refused.cluster.devices[d].id);
  }

  std::vector<std::string> run() {
    if (strategy_.divide) {
      if (refused_.placement.order == PhaseOrder::gpipe) try_one("-O order=1f1b", with_order());
      try_towers();
      try_variables();
      try_strategies(devices_, "");
      try_devices();
    }
    for (std::int64_t batch = refused_.batch / 2; batch >= 1; batch /= 2)
      if (try_one(fmt::format("--batch {}", batch), strategy_, batch)) break;
    return out_;
  }

 private:
  bool try_one(const std::string& text, const Strategy& strategy, std::int64_t batch = 0) {
    if (left_ == 0) return false;
    --left_;
    std::optional<PlacedGraph> plan = attempt_(strategy, batch ? batch : refused_.batch);
    if (!plan) return false;
    std::vector<DeviceBytes> bytes = device_bytes(*plan);
    auto most = std::max_element(bytes.begin(), bytes.end(), [](const DeviceBytes& a, const DeviceBytes& b) { return a.total() < b.total(); });
    out_.push_back(fmt::format("{} (at most {} bytes, on {})", text, most->total(), to_string(plan->cluster.devices[static_cast<std::size_t>(most - bytes.begin())].id)));
    return true;
  }

  Strategy with_towers(const Strategy& base, int towers) const {
    Strategy out = base;
    out.divide = [base, own = strategy_, towers](const Graph& g, const Cluster& c) {
      Division d = base.divide(g, c), mine = own.divide(g, c);
      d.towers = towers, d.combine = mine.combine, d.threads = mine.threads;
      return d;
    };
    return out;
  }
  Strategy with_order() const {
    Strategy out = strategy_;
    out.divide = [own = strategy_](const Graph& g, const Cluster& c) {
      Division d = own.divide(g, c);
      d.order = PhaseOrder::one_f_one_b;
      return d;
    };
    return out;
  }

  /// One after the other on the same devices.
  void try_towers() {
    for (int towers = refused_.towers; towers <= refused_.batch / 2 && towers <= 1024;)
      if (towers *= 2; try_one(fmt::format("--towers {}", towers), with_towers(strategy_, towers))) return;
  }

  const StrategyDef* known(const std::string& name) const {
    auto at = std::find_if(known_.begin(), known_.end(), [&](const StrategyDef& s) { return s.name == name; });
    return at == known_.end() ? nullptr : &*at;
  }

  void try_variables() {
    const StrategyDef* towers = known("towers");
    if (refused_.placement.strategy != "towers" || !towers) return;
    std::vector<std::string> where;
    if (devices_.size() > 1) where.push_back("spread");
    for (const ClusterDevice& d : refused_.cluster.devices) where.push_back(to_string(d.id));
    where.resize(std::min<std::size_t>(where.size(), 5));
    for (const std::string& w : where)
      if (try_one("-O variables=" + w, with_towers(towers->make(devices_, {{"variables", w}}), refused_.towers))) return;
  }

  /// Cut over the devices in place of whole on each.
  bool try_strategies(const std::vector<DeviceId>& devices, const std::string& text) {
    if (devices.size() < 2) return false;
    bool found = false;
    for (const char* name : {"layers", "pipeline"}) {
      const StrategyDef* s = known(name);
      if (!s || refused_.placement.strategy == name || refused_.placement.strategy == "placement") continue;
      const int towers = s->name == "layers" ? 1 : static_cast<int>(std::min<std::int64_t>(refused_.batch, 2 * static_cast<std::int64_t>(devices.size())));
      found = try_one(fmt::format("--strategy {} --towers {}{}", name, towers, text), with_towers(s->make(devices, {}), towers)) || found;
    }
    return found;
  }

  /// The cluster's other devices of the same kinds.
  void try_devices() {
    std::vector<DeviceId> all = devices_;
    std::string names;
    for (const ClusterDevice& d : refused_.cluster.devices)
      if (std::find(all.begin(), all.end(), d.id) == all.end() && std::any_of(devices_.begin(), devices_.end(), [&](const DeviceId& mine) { return mine.kind == d.id.kind; })) all.push_back(d.id);
    if (all.size() == devices_.size()) return;
    for (const DeviceId& d : all) names += (names.empty() ? "" : ",") + to_string(d);
    const std::string text = " --devices " + names;
    const StrategyDef* same = known(refused_.placement.strategy == "single" ? "towers" : refused_.placement.strategy);
    const int towers = std::max(refused_.towers, static_cast<int>(std::min<std::int64_t>(refused_.batch, static_cast<std::int64_t>(all.size()))));
    if (same && try_one(fmt::format("--strategy {} --towers {}{}", same->name, towers, text), with_towers(same->make(all, {}), towers))) return;
    try_strategies(all, text);
  }

  const PlacedGraph& refused_;
  const Strategy& strategy_;
  const std::vector<StrategyDef>& known_;
  const TryPlan& attempt_;
  std::size_t left_;
  std::vector<DeviceId> devices_;  ///< that run towers
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> memory_advice(const PlacedGraph& refused, const Strategy& strategy, const std::vector<StrategyDef>& known, const TryPlan& attempt) {
  return Adviser(refused, strategy, known, attempt).run();
}

std::string tensors_at_peak(const PlacedGraph& refused) {
  const Forecast f = forecast(refused);
  const DeviceForecast* fullest = nullptr;
  auto room = [&](const DeviceForecast& d) { return refused.cluster.devices[static_cast<std::size_t>(d.device)].memory - d.bytes; };
  for (const DeviceForecast& d : f.devices)  // the list is kept for the first of devices that hold the same
    if (!d.peak.empty() && (!fullest || std::pair(room(d), -d.bytes) < std::pair(room(*fullest), -fullest->bytes))) fullest = &d;
  if (!fullest) return "";
  std::string out;
  for (const auto& [name, bytes] : fullest->peak) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, bytes);
  return fmt::format("on {}: {}", to_string(refused.cluster.devices[static_cast<std::size_t>(fullest->device)].id), out);
}

}  // namespace belfry
