#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

using Options = std::map<std::string, std::string>;
using Devices = std::vector<DeviceId>;

constexpr int kFewDevices = 16;    // up to here one more or less is a step; of more, as many as one is of these
constexpr int kMostStages = 16;    // of candidates: deeper pipelines are asked for by name
constexpr int kManyTowers = 1024;  // more than one a device are looked at up to here: a forecast walks every tower's steps

bool is_cut(const std::string& name) { return name == "pipeline" || name == "hybrid"; }

/// All, then those of each kind, if there are several.
std::vector<Devices> lists_of(const Devices& devices) {
  std::vector<Devices> out = {devices};
  for (const DeviceId& first : devices) {
    Devices alike;
    std::copy_if(devices.begin(), devices.end(), std::back_inserter(alike), [&](const DeviceId& d) { return d.kind == first.kind; });
    if (std::find(out.begin(), out.end(), alike) == out.end()) out.push_back(std::move(alike));
  }
  return out;
}

/// Makes strategies by name, with what `auto` was given, and the options that tables show.
class Maker {
 public:
  explicit Maker(const Auto& choice) : choice_(choice), known_(standard_strategies()) {}

  void make(const std::string& name, const Devices& devices, Options options) {
    std::erase_if(options, [](const auto& o) { return o.second.empty(); });
    std::string text;
    for (const auto& [option, value] : options) text += fmt::format("{}-O {}={}", text.empty() ? "" : " ", option, value);
    if (devices != choice_.devices) text += fmt::format("{}--devices {}", text.empty() ? "" : " ", to_string(devices));
    if (choice_.combine != Combine{}) options["combine"] = to_string(choice_.combine);
    if (choice_.threads) options["threads"] = std::to_string(choice_.threads);
    auto def = std::find_if(known_.begin(), known_.end(), [&](const StrategyDef& s) { return s.name == name; });
    Strategy& s = out.emplace_back(def->make(devices, options));
    s.options = std::move(text);
  }

  std::vector<Strategy> out;

 private:
  const Auto& choice_;
  std::vector<StrategyDef> known_;
};

/// Pipelines with one and four micro-batches a stage; with so many towers, what they come to.
void make_pipelines(Maker& m, const Devices& d, int towers) {
  const int n = static_cast<int>(d.size());
  for (int replicas = 1; replicas < n; ++replicas) {
    if (n % replicas || n / replicas > kMostStages) continue;
    for (int times : {1, 4}) {
      const int micro = towers ? towers / replicas : times * n / replicas;
      if (micro < 2 || (!towers && times > 1 && micro * replicas > kManyTowers) || (towers && (micro * replicas != towers || times > 1))) continue;
      m.make(replicas > 1 ? "hybrid" : "pipeline", d, {{"towers", std::to_string(micro * replicas)}, {"replicas", replicas > 1 ? std::to_string(replicas) : ""}, {"order", "1f1b"}});
    }
  }
}

/// One candidate, and each that differs from it in one decision.
class Near {
 public:
  Near(const Auto& choice, const Strategy& s) : choice_(choice), maker_(choice), name_(s.name), devices_(s.given->devices), options_(s.given->options), n_(static_cast<int>(devices_.size())) {
    options_.erase("combine"), options_.erase("threads");
  }

  std::vector<Strategy> run() {
    const bool pipelined = is_cut(name_);
    if (name_ == "towers") values("variables", {"", devices_[0] == cpu(0) ? "" : to_string(devices_[0]), "spread", "chosen"});
    if (name_ == "towers" || name_ == "sharded") values("reduction", {"", "hierarchical"});
    if (name_ == "mirrored") values("reduction", {"", "hierarchical", "reduce-to-one"}), values("buckets", {"", "none"});
    if (name_ == "layers" || pipelined) values("objective", {"", "latency", "variables"});
    if (pipelined) orders(), replicas();
    if (!choice_.towers) towers();
    others();
    return std::move(maker_.out);
  }

  /// With twice as many towers.
  std::optional<Strategy> smaller() {
    if (towers_now() > kManyTowers / 2) return {};
    with({{"towers", std::to_string(2 * towers_now())}});
    return std::move(maker_.out.front());
  }

 private:
  std::string get(const char* option) const {
    auto at = options_.find(option);
    return at == options_.end() ? "" : at->second;
  }
  int number(const char* option, int otherwise) const { return get(option).empty() ? otherwise : std::stoi(get(option)); }
  int towers_now() const { return number("towers", name_ == "single" || name_ == "layers" ? 1 : n_); }

  void with(Options changed) {
    Options all = options_;
    for (auto& [option, value] : changed) all[option] = value;
    maker_.make(name_, devices_, std::move(all));
  }
  void values(const char* option, const std::vector<std::string>& all) {
    for (const std::string& value : all)
      if (value != get(option)) with({{option, value}});
  }
  void orders() {
    for (const char* order : {"gpipe", "1f1b"}) with({{"order", order}, {"chunks", ""}});
    for (const char* chunks : {"", "2", "4"}) with({{"order", "interleaved"}, {"chunks", chunks}});
  }
  void replicas() {
    const int now = number("replicas", 1);
    for (int r : {1, now / 2, now * 2})
      if (r > 0 && r != now && n_ % r == 0 && r < n_) maker_.make(r > 1 ? "hybrid" : "pipeline", devices_, with_replicas(r));
  }
  Options with_replicas(int r) const {
    Options out = options_;
    out["replicas"] = r > 1 ? std::to_string(r) : "";
    return out;
  }
  /// Not fewer than there are devices, but for a cut.
  void towers() {
    const int now = towers_now(), least = is_cut(name_) ? 2 : name_ == "single" || name_ == "layers" ? 1 : n_;
    for (int t : {now / 2, now * 2})
      if (t >= least && (t <= kManyTowers || t < now)) with({{"towers", std::to_string(t)}});
  }
  /// A device less or more of each list that these are the first of, of many devices some; a pipeline more of each where there are several
  /// side by side.
  void others() {
    if (name_ == "single") return;
    const int beside = number("replicas", 1), by = beside * std::max(1, n_ / (kFewDevices * beside)), now = towers_now(), least = name_ == "towers" ? 1 : 2 * beside;
    for (const Devices& list : lists_of(choice_.devices)) {
      if (!std::equal(devices_.begin(), devices_.end(), list.begin(), list.begin() + std::min<std::ptrdiff_t>(n_, std::ssize(list)))) continue;
      for (int n : {n_ - by, n_ + by}) {
        if (n < least || n > static_cast<int>(list.size())) continue;
        const Devices d(list.begin(), list.begin() + n);
        Options as_many = options_;
        if (as_many.contains("variables") && as_many["variables"] == to_string(devices_[0])) as_many["variables"] = to_string(d[0]);
        maker_.make(name_, d, as_many);
        if (choice_.towers || !options_.contains("towers") || now * n % n_) continue;
        as_many["towers"] = std::to_string(now * n / n_);  // as many for each
        maker_.make(name_, d, as_many);
      }
    }
  }

  const Auto& choice_;
  Maker maker_;
  std::string name_;
  Devices devices_;
  Options options_;
  int n_;
};

}  // namespace

std::vector<Strategy> Auto::candidates() const {
  Maker m(*this);
  const std::string T = towers ? std::to_string(towers) : "";
  for (const Devices& list : lists_of(devices))
    for (int all = static_cast<int>(list.size()), n = all; n >= 1; n = n > 1 ? (n + 1) / 2 : 0) {
      const Devices d(list.begin(), list.begin() + n);
      const std::string first = to_string(d[0]);
      if (n == 1) m.make("single", d, {{"towers", T}});
      if (n == 1 && d[0].kind != "gpu") continue;
      for (const std::string& variables : {std::string(), std::string("chosen"), first, std::string("spread")})
        if (variables.empty() || variables == "chosen" || (n > 1 && variables != "cpu:0")) m.make("towers", d, {{"variables", variables}, {"towers", T}});
      if (n == 1) continue;
      for (const char* reduction : {"", "hierarchical"}) m.make("mirrored", d, {{"reduction", reduction}, {"towers", T}});
      m.make("sharded", d, {{"towers", T}});
      if (towers <= 1) m.make("layers", d, {});
      make_pipelines(m, d, towers);
    }
  return std::move(m.out);
}

std::vector<Strategy> Auto::near(const Strategy& candidate) const {
  std::vector<Strategy> out = Near(*this, candidate).run();
  for (Strategy& s : out) s = recomputing(std::move(s), candidate.given->recompute);
  return out;
}

std::optional<Strategy> Auto::smaller(const Strategy& candidate) const {
  if (towers || !candidate.given) return {};
  std::optional<Strategy> out = Near(*this, candidate).smaller();
  if (out) out = recomputing(std::move(*out), candidate.given->recompute);
  return out;
}

Strategy recomputing(Strategy s, int stretches) {
  if (!stretches) return s;
  if (s.given) s.given->recompute = stretches;
  s.options += fmt::format("{}--recompute {}", s.options.empty() ? "" : " ", stretches);
  s.divide = [divide = s.divide, stretches](const Graph& g, const Cluster& c) {
    Division d = divide(g, c);
    d.recompute = stretches;
    return d;
  };
  return s;
}

Strategy to_strategy(const Auto& s) {
  Strategy out{"auto", s.devices, {}, {}, {}, s.candidates(), [s](const Strategy& candidate) { return s.near(candidate); }, [s](const Strategy& candidate) { return s.smaller(candidate); }};
  if (std::find(out.devices.begin(), out.devices.end(), cpu(0)) == out.devices.end()) out.devices.push_back(cpu(0));
  return out;
}

}  // namespace belfry
