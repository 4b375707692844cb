#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/cut/launches.h>
#include <belfry/placer/strategies/buckets_internal.h>

namespace belfry {

namespace {

/// A sum as the pass backward sees it.
struct Gradient {
  int node = 0;
  double ready = 0;          // seconds after the pass began
  std::int64_t bytes = 0;
  bool ranged = false;
  int epoch = 0;             // sums of several are not added together: towers read what lies between
};

/// Bytes of buckets that are tried, beside what the links' latency asks for; DDP has 25 MB by default.
constexpr double kSizes[] = {1e6, 5e6, 10e6, 25e6, 50e6, 120e6, 1e15};

struct Filled {
  std::vector<int> of;       // per gradient its bucket
  double end = 0;            // of the last sum
  int buckets = 0;
};

/// Fills buckets of at least so many bytes, in order; one begins when its last gradient and the collective before it are done.
Filled filled(const std::vector<Gradient>& gradients, double size, SumCost whole, SumCost in_ranges) {
  struct Open {
    int number = 0, count = 0;
    double bytes = 0, ready = 0;
  };
  Filled out;
  out.of.resize(gradients.size());
  Open open[2];
  auto close = [&](bool ranged) {
    Open& o = open[ranged];
    const SumCost& c = ranged ? in_ranges : whole;
    if (o.count) out.end = std::max(out.end, o.ready) + c.fixed + o.bytes * c.per_byte;
    o = {};
  };
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& g = gradients[i];
    if (i && gradients[i - 1].epoch != g.epoch) close(false), close(true);
    Open& o = open[g.ranged];
    if (!o.count) o.number = ++out.buckets;
    out.of[i] = o.number;
    ++o.count, o.bytes += static_cast<double>(g.bytes), o.ready = g.ready;
    if (o.bytes >= size) close(g.ranged);
  }
  close(false), close(true);
  return out;
}

std::string size_text(double bytes) { return bytes <= 0 ? "none" : bytes >= 1e15 ? "all" : bytes >= 1 << 20 ? fmt::format("{:.1f} MiB", bytes / (1 << 20)) : fmt::format("{:.1f} KiB", bytes / 1024); }

/// Per node of the tower graph; a gradient that is alone goes by itself.
std::vector<int> by_node(std::size_t nodes, const std::vector<Gradient>& gradients, const Filled& filled) {
  std::vector<int> out(nodes);
  std::map<int, int> members;
  for (int b : filled.of) ++members[b];
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (members[filled.of[i]] > 1) out[static_cast<std::size_t>(gradients[i].node)] = filled.of[i];
  return out;
}

/// The ends of all sizes that were tried and of some more become those of a step, and the size with the shortest that fits is chosen; sizes that fill alike
/// are one. False, and nothing is changed, where no step is forecast.
bool walk_all(std::size_t nodes, const std::vector<Gradient>& gradients, const StepForecast& forecast, SumCost whole, SumCost in_ranges, std::map<double, Filled>& tried, double& chosen) {
  std::map<double, Filled> walked;
  std::set<std::vector<int>> known;
  std::vector<std::pair<double, double>> by_time;  // with the sizes
  auto walk = [&](double size, Filled f) {
    if (!known.insert(f.of).second) return true;
    const std::optional<double> seconds = forecast.seconds(by_node(nodes, gradients, f));
    if (!seconds) return false;
    f.end = *seconds;
    by_time.emplace_back(f.end, size);
    walked[size] = std::move(f);
    return true;
  };
  for (double size : kSizes) tried.try_emplace(size, filled(gradients, size, whole, in_ranges));
  for (const auto& [size, f] : tried)
    if (!walk(size, f)) return false;
  tried = std::move(walked);
  std::sort(by_time.begin(), by_time.end());
  const auto fits = std::find_if(by_time.begin(), by_time.end(), [&](const auto& x) { return forecast.fits(by_node(nodes, gradients, tried.at(x.second))); });
  chosen = (fits == by_time.end() ? by_time.front() : *fits).second;
  return true;
}

/// As set_epochs: a tower's node is of a new epoch where it reads what joins towers.
std::vector<int> epochs_of(const TowerGraph& tg) {
  std::vector<int> out;
  for (const PlanNode& n : tg.nodes) {
    const bool tower = n.scope == Scope::tower;
    int epoch = tower ? 0 : -1;
    for_values_read(n, [&](ValueIndex v) { epoch = std::max(epoch, out[static_cast<std::size_t>(tg.value(v).maker)] + (tower && tg.maker(v).scope != Scope::tower ? 1 : 0)); });
    out.push_back(epoch);
  }
  return out;
}

/// When each gradient is there: one device runs its towers one after the other, so the last of them decides.
std::vector<Gradient> gradients_of(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, const std::vector<DeviceId>& devices, const std::vector<int>& sums, const std::vector<bool>& ranged) {
  Launches launches(tg, cluster, costs);
  std::vector<double> done(tg.nodes.size());
  double now = 0;
  const int device = cluster.at(devices.front());
  for (std::size_t i = 0; i < tg.nodes.size(); ++i) {
    if (tg.nodes[i].scope == Scope::tower) now += launches.seconds(static_cast<int>(i), device);
    done[i] = now;
  }
  const int rounds = (tg.present() + static_cast<int>(devices.size()) - 1) / static_cast<int>(devices.size());
  const std::vector<int> epochs = epochs_of(tg);
  std::vector<Gradient> out;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const PlanNode& n = tg.nodes[static_cast<std::size_t>(sums[k])];
    out.push_back({sums[k], (rounds - 1) * now + done[static_cast<std::size_t>(tg.value(n.inputs[0]).maker)], local_type(tg.value(n.outputs[0]), tg.share(-1)).bytes(), ranged[k], epochs[static_cast<std::size_t>(sums[k])]});
  }
  std::stable_sort(out.begin(), out.end(), [](const Gradient& a, const Gradient& b) { return std::pair(a.epoch, a.ready) < std::pair(b.epoch, b.ready); });
  return out;
}

}  // namespace

Buckets bucketed(const TowerGraph& tg, const Cluster& cluster, const CostTable& costs, const std::vector<DeviceId>& devices, const std::vector<int>& sums, const std::vector<bool>& ranged,
                 std::optional<std::int64_t> bytes, SumCost whole, SumCost in_ranges, const StepForecast& forecast) {
  Buckets out{std::vector<int>(tg.nodes.size()), ""};
  if (sums.size() < 2 || bytes == 0) return out;
  const std::vector<Gradient> gradients = gradients_of(tg, cluster, costs, devices, sums, ranged);
  std::map<double, Filled> tried;
  double chosen = 0;
  bool walked = false;
  if (bytes) {
    chosen = static_cast<double>(*bytes);
    tried[chosen] = filled(gradients, chosen, whole, in_ranges);
  } else {
    // Around what a link carries in the time that a collective costs anyway.
    const double unit = in_ranges.per_byte > 0 ? in_ranges.fixed / in_ranges.per_byte : 0;
    tried[0] = filled(gradients, 0, whole, in_ranges);
    for (double times : {0.25, 1.0, 4.0, 16.0, 64.0})
      if (unit > 0) tried[times * unit] = filled(gradients, times * unit, whole, in_ranges);
    for (const auto& [size, f] : tried)
      if (f.end < tried.at(chosen).end) chosen = size;
    walked = walk_all(tg.nodes.size(), gradients, forecast, whole, in_ranges, tried, chosen);
  }
  const Filled& best = tried.at(chosen);
  out.of = by_node(tg.nodes.size(), gradients, best);
  std::string losers;
  for (const auto& [size, f] : tried)
    if (size != chosen) losers += fmt::format("{}{} {:.4g} ms", losers.empty() ? " (" : ", ", size_text(size), 1e3 * f.end);
  out.reason = fmt::format("{} {} of {} from {} gradients: {} {:.4g} ms{}{}", best.buckets, best.buckets == 1 ? "bucket" : "buckets", chosen > 0 ? size_text(chosen) : "one each", gradients.size(),
                           walked ? "a plain step takes" : "all added", 1e3 * best.end, walked ? "" : " after the pass began", losers.empty() ? "" : losers + ")");
  return out;
}

std::vector<int> sums_of_gradients(const TowerGraph& tg) {
  std::vector<bool> reaches(tg.nodes.size());  // a tower
  std::vector<int> out;
  for (std::size_t i = tg.nodes.size(); i-- > 0;) {
    const PlanNode& n = tg.nodes[i];
    if (n.scope == Scope::tower || reaches[i]) for_values_read(n, [&](ValueIndex v) { reaches[static_cast<std::size_t>(tg.value(v).maker)] = true; });
    const bool sum = is_op(n, kAggregate) && n.attributes.text("how") == "sum";
    if (sum && !reaches[i] && tg.maker(n.inputs[0]).scope == Scope::tower && tg.maker(n.inputs[0]).role == Role::backward) out.push_back(static_cast<int>(i));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace belfry
