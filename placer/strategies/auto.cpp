#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

using Options = std::map<std::string, std::string>;
using Devices = std::vector<DeviceId>;

constexpr int kFewDevices = 16;    // up to here one more or less is a step; of more, as many as one is of these
constexpr int kMostStages = 16;    // of candidates: deeper pipelines are asked for by name
constexpr int kManyTowers = 1024;  // more than one a device are looked at up to here: a forecast walks every tower's steps
constexpr std::size_t kMostSpeeds = 4;  // of unlike devices: of more, lists end at halves alone

bool is_cut(const std::string& name) { return name == "pipeline" || name == "hybrid"; }

/// The devices of a choice, the fastest first, equally fast ones as they were given.
class Pool {
 public:
  Pool(const Devices& devices, const SecondsOf& seconds) {
    for (const DeviceId& d : devices) by_seconds_[seconds_[d] = seconds(d)].push_back(d);
  }

  /// All; those of each kind; where speeds differ, those down to each speed, and those of each: the fastest may have the least memory.
  std::vector<Devices> lists() const {
    Devices all;
    std::vector<Devices> ends, alike;
    for (const auto& [seconds, group] : by_seconds_) {
      all.insert(all.end(), group.begin(), group.end());
      ends.push_back(all), alike.push_back(group);
    }
    std::vector<Devices> out = {all};
    auto add = [&](Devices list) {
      if (std::find(out.begin(), out.end(), list) == out.end()) out.push_back(std::move(list));
    };
    for (const DeviceId& first : all) {
      Devices of_kind;
      std::copy_if(all.begin(), all.end(), std::back_inserter(of_kind), [&](const DeviceId& d) { return d.kind == first.kind; });
      add(std::move(of_kind));
    }
    if (by_seconds_.size() > kMostSpeeds) return out;
    for (const std::vector<Devices>* lists : {&ends, &alike})
      for (const Devices& list : *lists) add(list);
    return out;
  }

  /// Of unlike devices as many of each speed for every replica, so that a stage is as fast in all; else neighbours stay together.
  Devices dealt(const Devices& devices, int replicas) const { return turned(devices, static_cast<std::size_t>(replicas), true); }
  /// As they were before.
  Devices gathered(const Devices& devices, int replicas) const { return turned(devices, static_cast<std::size_t>(replicas), false); }

 private:
  Devices turned(const Devices& devices, std::size_t replicas, bool deal) const {
    std::set<double> speeds;
    for (const DeviceId& d : devices) speeds.insert(seconds_.at(d));
    if (speeds.size() < 2 || devices.size() % replicas) return devices;
    const std::size_t stages = devices.size() / replicas;
    Devices out = devices;
    for (std::size_t r = 0; r < replicas; ++r)
      for (std::size_t s = 0; s < stages; ++s) (deal ? out[r * stages + s] : out[s * replicas + r]) = devices[deal ? s * replicas + r : r * stages + s];
    return out;
  }

  std::map<DeviceId, double> seconds_;
  std::map<double, Devices> by_seconds_;
};

/// Makes strategies by name, with what `auto` was given, and the options that tables show.
class Maker {
 public:
  Maker(const Auto& choice, const Pool& pool) : choice_(choice), pool_(pool), known_(standard_strategies()) {}

  void make(const std::string& name, Devices devices, Options options) {
    std::erase_if(options, [](const auto& o) { return o.second.empty(); });
    if (options.contains("replicas")) devices = pool_.dealt(devices, std::stoi(options.at("replicas")));
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
  const Pool& pool_;
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

/// Of towers: where variables live and how gradients are added, each with each, since what one costs goes by the other.
std::vector<Options> homes_and_reductions(const Devices& devices) {
  std::set<std::string> homes = {"", "chosen"};
  if (devices.size() > 1) homes.insert("spread");
  if (devices.size() > 1 && devices[0] != cpu(0)) homes.insert(to_string(devices[0]));
  std::vector<Options> out;
  for (const std::string& home : homes)
    for (const char* reduction : {"", "hierarchical"})
      if (devices.size() > 1 || !*reduction) out.push_back({{"variables", home}, {"reduction", reduction}});
  return out;
}

/// One candidate, and each that differs from it in one decision.
class Near {
 public:
  Near(const Auto& choice, const Pool& pool, const Strategy& s)
      : choice_(choice), pool_(pool), maker_(choice, pool), name_(s.name), devices_(s.given->devices), options_(s.given->options), n_(static_cast<int>(devices_.size())) {
    options_.erase("combine"), options_.erase("threads");
    devices_ = pool.gathered(devices_, number("replicas", 1));
  }

  std::vector<Strategy> run() {
    const bool pipelined = is_cut(name_);
    if (name_ == "towers")
      for (const Options& o : homes_and_reductions(devices_)) with(o);
    if (name_ == "sharded") values("reduction", {"", "hierarchical"});
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

  void with(const Options& changed) {
    Options all = options_;
    for (const auto& [option, value] : changed) all[option] = value;
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
    for (const Devices& list : pool_.lists()) {
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
  const Pool& pool_;
  Maker maker_;
  std::string name_;
  Devices devices_;
  Options options_;
  int n_;
};

std::vector<Strategy> candidates_of(const Auto& choice, const Pool& pool) {
  Maker m(choice, pool);
  const std::string T = choice.towers ? std::to_string(choice.towers) : "";
  for (const Devices& list : pool.lists())
    for (int all = static_cast<int>(list.size()), n = all; n >= 1; n = n > 1 ? (n + 1) / 2 : 0) {
      const Devices d(list.begin(), list.begin() + n);
      if (n == 1) m.make("single", d, {{"towers", T}});
      if (n == 1 && d[0].kind != "gpu") continue;
      for (Options o : homes_and_reductions(d)) {
        if (n < all && !o["reduction"].empty()) continue;  // near what is good it is looked at
        o["towers"] = T;
        m.make("towers", d, std::move(o));
      }
      if (n == 1) continue;
      for (const char* reduction : {"", "hierarchical"}) m.make("mirrored", d, {{"reduction", reduction}, {"towers", T}});
      m.make("sharded", d, {{"towers", T}});
      if (choice.towers <= 1) m.make("layers", d, {});
      make_pipelines(m, d, choice.towers);
    }
  return std::move(m.out);
}

}  // namespace

Choice Auto::choice(const SecondsOf& seconds) const {
  const Pool pool(devices, seconds);
  auto near = [s = *this, pool](const Strategy& candidate) {
    std::vector<Strategy> out = Near(s, pool, candidate).run();
    for (Strategy& o : out) o = recomputing(std::move(o), candidate.given->recompute);
    return out;
  };
  auto smaller = [s = *this, pool](const Strategy& candidate) -> std::optional<Strategy> {
    if (s.towers || !candidate.given) return {};
    std::optional<Strategy> out = Near(s, pool, candidate).smaller();
    if (out) out = recomputing(std::move(*out), candidate.given->recompute);
    return out;
  };
  return {candidates_of(*this, pool), near, smaller};
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
  Strategy out{"auto", s.devices, {}, {}};
  out.choice = [s](const SecondsOf& seconds) { return s.choice(seconds); };
  if (std::find(out.devices.begin(), out.devices.end(), cpu(0)) == out.devices.end()) out.devices.push_back(cpu(0));
  return out;
}

}  // namespace belfry
