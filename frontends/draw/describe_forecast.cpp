#include <belfry/frontends/draw/describe_forecast.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>

namespace belfry {

namespace {

constexpr std::size_t kMostLines = 12;

std::string percent(double part, double whole) { return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0); }

/// Devices by what is said of them, in the order of the first of each.
class Folded {
 public:
  explicit Folded(const PlacedGraph& plan) : plan_(plan) {}
  void add(int device, const std::string& text) {
    auto [at, fresh] = place_.try_emplace(text, lines_.size());
    if (fresh) lines_.push_back({text, {}});
    lines_[at->second].second.push_back(plan_.cluster.devices[static_cast<std::size_t>(device)].id);
  }
  std::string text() const {
    std::string out;
    for (std::size_t i = 0; i < std::min(lines_.size(), kMostLines); ++i) {
      const auto& [said, ids] = lines_[i];
      const std::string names = to_string(ids);
      out += fmt::format("  {:<12} {}\n", names.size() <= 40 ? names : fmt::format("{} and {} like it", to_string(ids[0]), ids.size() - 1), said);
    }
    if (lines_.size() > kMostLines) out += fmt::format("  and {} more\n", lines_.size() - kMostLines);
    return out;
  }

 private:
  const PlacedGraph& plan_;
  std::vector<std::pair<std::string, std::vector<DeviceId>>> lines_;
  std::map<std::string, std::size_t> place_;
};

std::string sources(const Forecast& f) {
  double all = 0;
  for (double s : f.by_source) all += s;
  std::string out;
  for (int k = 0; k < kCostSources; ++k)
    if (f.by_source[static_cast<std::size_t>(k)] > 0.0005 * all) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", percent(f.by_source[static_cast<std::size_t>(k)], all), to_string(static_cast<CostSource>(k)));
  return out.empty() ? "no kernels" : out;
}

std::string devices(const PlacedGraph& plan, const Forecast& f) {
  Folded lines(plan);
  std::map<std::pair<int, std::int64_t>, std::string> peaks;  // of the first device that holds the same
  for (const DeviceGroup& g : plan.groups)
    for (const DeviceForecast& d : f.devices)
      if (!g.devices.empty() && d.device == g.devices.front()) {
        std::string names;
        for (std::size_t i = 0; i < std::min<std::size_t>(d.peak.size(), 3); ++i) names += fmt::format("{}{} {}", i ? ", " : "", d.peak[i].first, human_bytes(d.peak[i].second));
        for (int other : g.devices) peaks[{other, d.bytes}] = d.peak.empty() ? "" : fmt::format("; live at most {}: {}{}", human_bytes(d.live), names, d.peak.size() > 3 ? ", …" : "");
      }
  for (const DeviceForecast& d : f.devices) {
    const ClusterDevice& device = plan.cluster.devices[static_cast<std::size_t>(d.device)];
    const bool limited = device.memory != ClusterDevice{}.memory;
    lines.add(d.device, fmt::format("busy {:>5}  memory {}{}{}{}", percent(d.busy, f.seconds), human_bytes(d.bytes), limited ? " of " + human_bytes(device.memory) : "", d.bytes > device.memory ? ", which does not fit" : "",
                                    peaks[{d.device, d.bytes}]));
  }
  return "devices\n" + lines.text();
}

std::string streams(const PlacedGraph& plan, const Forecast& f) {
  Folded lines(plan);
  for (const StreamForecast& s : f.streams)
    if (s.busy > 0) lines.add(plan.streams[static_cast<std::size_t>(s.stream)].device, fmt::format("{} busy {}", plan.streams[static_cast<std::size_t>(s.stream)].name, percent(s.busy, f.seconds)));
  return "streams\n" + lines.text();
}

std::string links(const Forecast& f) {
  if (f.links.empty()) return "";
  std::string out = "links\n";
  for (std::size_t i = 0; i < std::min(f.links.size(), kMostLines); ++i) {
    const LinkForecast& l = f.links[i];
    out += fmt::format("  {} -> {}  {}{}\n", l.from, l.to, human_bytes(static_cast<std::int64_t>(l.bytes)), l.busy > 0 ? ", busy " + percent(l.busy, f.seconds) : "");
  }
  if (f.links.size() > kMostLines) out += fmt::format("  and {} more\n", f.links.size() - kMostLines);
  return out;
}

std::string path(const PlacedGraph& plan, const Forecast& f) {
  std::vector<PathShare> shares = path_shares(plan, f);
  std::string out = fmt::format("critical path, {} launches\n", f.path.size());
  for (std::size_t i = 0; i < std::min(shares.size(), kMostLines); ++i) {
    const PathShare& s = shares[i];
    out += fmt::format("  {:>9}  {:>5}  {} on {}{}{}\n", human_seconds(s.seconds), percent(s.seconds, f.seconds), s.node, s.device, s.launches > 1 ? fmt::format(", {} times", s.launches) : "",
                       s.moving > 0 ? fmt::format(", {} of it bytes on their way", human_seconds(s.moving)) : "");
  }
  if (shares.size() > kMostLines) out += fmt::format("  and {} more nodes\n", shares.size() - kMostLines);
  const double feeds = waits_for_feeds(f);
  if (feeds > 0) out += fmt::format("  {:>9}  {:>5}  until the feeds of the next step have landed\n", human_seconds(feeds), percent(feeds, f.seconds));
  double idle = f.seconds - feeds;
  for (const PathShare& s : shares) idle -= s.seconds;
  if (idle > 0.005 * f.seconds) out += fmt::format("  {:>9}  {:>5}  between launches and before the first\n", human_seconds(idle), percent(idle, f.seconds));
  return out;
}

}  // namespace

std::string human_seconds(double s) {
  if (s >= 1) return fmt::format("{:.3g} s", s);
  if (s >= 1e-3) return fmt::format("{:.3g} ms", s * 1e3);
  return fmt::format("{:.3g} us", s * 1e6);
}

std::string describe(const PlacedGraph& plan, const Forecast& f) {
  std::string out = fmt::format("{}, {} a step, {:.4g} rows a second\n", describe_batch(plan), human_seconds(f.seconds), static_cast<double>(plan.batch) / f.seconds);
  out += fmt::format("kernel times: {}\n", sources(f));
  out += devices(plan, f) + streams(plan, f) + links(f) + path(plan, f);
  if (std::string why = why_not_more(plan, f); !why.empty()) out += why + "\n";
  return out;
}

std::string describe_beside(const PlacedGraph& plan, const Forecast& f, const MeasuredRun& run) {
  auto error = [](double forecast, double measured) { return measured > 0 ? fmt::format("{:+.1f} %", 100 * (forecast / measured - 1)) : std::string("-"); };
  std::string out = fmt::format("measured {}, forecast {}: {}\n", human_seconds(run.seconds), human_seconds(f.seconds), error(f.seconds, run.seconds));
  if (run.launches.empty()) return out;
  std::map<int, std::pair<double, double>> nodes;  // forecast, measured
  for (std::size_t k = 0; k < f.launches.size(); ++k) {
    auto& [forecast, measured] = nodes[f.launches[k].node];
    forecast += f.launches[k].end - f.launches[k].begin;
    measured += run.launches[k];
  }
  std::vector<std::pair<int, std::pair<double, double>>> all(nodes.begin(), nodes.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return std::abs(a.second.first - a.second.second) > std::abs(b.second.first - b.second.second); });
  for (std::size_t i = 0; i < std::min(all.size(), kMostLines); ++i) {
    auto [forecast, measured] = all[i].second;
    out += fmt::format("  {:>9} measured, {:>9} forecast, {:>8}  {}\n", human_seconds(measured), human_seconds(forecast), error(forecast, measured), plan.nodes[static_cast<std::size_t>(all[i].first)].name);
  }
  return out;
}

}  // namespace belfry
