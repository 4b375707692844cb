#include <belfry/placer/choose.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

/// With its plan.
Candidate looked_at(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  Candidate out{strategy, 0, 0, {}, {}, {}};
  try {
    out.plan = std::make_shared<PlacedGraph>(place(graph, strategy, cluster, batch, options));
    const PlacedGraph& plan = *out.plan;
    const std::vector<DeviceBytes> bytes = device_bytes(plan);
    for (std::size_t d = 0; d < bytes.size(); ++d)
      if (bytes[d].total() > out.peak) out.peak = bytes[d].total(), out.fullest = to_string(plan.cluster.devices[d].id);
    if (std::vector<std::string> over = over_memory(plan); !over.empty()) out.refused = over.front();
    else out.seconds = forecast(plan, options.costs ? *options.costs : CostTable{}).seconds;
  } catch (const UserError& e) {
    out.refused = e.what();
  }
  return out;
}

}  // namespace

std::vector<Candidate> choose(std::shared_ptr<const Graph> graph, const std::vector<Strategy>& candidates, const Cluster& cluster, std::int64_t batch, const PlaceOptions& options) {
  std::vector<Candidate> out;
  double best = std::numeric_limits<double>::infinity();
  auto look_at = [&](const Strategy& s) {
    Candidate& c = out.emplace_back(looked_at(graph, s, cluster, batch, options));
    if (!c.refused.empty() || c.seconds >= best) return c.plan.reset();
    best = c.seconds;
    for (std::size_t i = 0; i + 1 < out.size(); ++i) out[i].plan.reset();
  };
  for (const Strategy& s : candidates) {
    look_at(s);
    if (!out.back().peak || out.back().refused.empty() || options.recompute.stretches) continue;
    for (int stretches : {4, 16}) look_at(recomputing(s, stretches));  // it does not fit as it is
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return std::pair(!a.refused.empty(), a.seconds) < std::pair(!b.refused.empty(), b.seconds); });
  if (out.empty() || !out.front().refused.empty()) throw UserError("no strategy can be taken:\n" + describe(out));
  return out;
}

std::string describe(const std::vector<Candidate>& candidates) {
  std::size_t width = 8;
  for (const Candidate& c : candidates) width = std::max(width, c.strategy.name.size() + 1 + c.strategy.options.size());
  std::string out = fmt::format("{:{}}  {:>12}  {:>12}\n", "strategy", width, "step", "peak");
  for (const Candidate& c : candidates) {
    const std::string name = c.strategy.options.empty() ? c.strategy.name : c.strategy.name + " " + c.strategy.options;
    out += c.refused.empty() ? fmt::format("{:{}}  {:9.3f} ms  {:8.1f} MiB on {}\n", name, width, 1e3 * c.seconds, static_cast<double>(c.peak) / (1 << 20), c.fullest)
                             : fmt::format("{:{}}  refused: {}\n", name, width, c.refused);
  }
  return out;
}

}  // namespace belfry
