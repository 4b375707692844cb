#include <belfry/frontends/draw/timeline.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/texts_internal.h>

namespace belfry {

namespace {

constexpr std::size_t kName = 17, kCells = 54, kMostStreams = 40, kMostShares = 5, kColumns = 80;

/// Filled with blanks, or cut, to so many characters.
std::string padded(const std::string& text, std::size_t columns) {
  std::string out = picture::shortened(text, columns);
  std::size_t length = 0;
  for (char c : out) length += (c & 0xC0) != 0x80;
  return out + std::string(columns - length, ' ');
}

std::string cells_of(const PlacedGraph& plan, const Forecast& f, const std::vector<int>& launches, const std::set<int>& path) {
  constexpr std::string_view letters = "icfbau";
  std::vector<std::array<double, 6>> filled(kCells + 1);
  std::vector<double> late(kCells + 1);
  const double scale = kCells / f.seconds;
  for (int k : launches) {
    const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
    const auto fill = static_cast<std::size_t>(picture::fill_of(plan, plan.nodes[static_cast<std::size_t>(l.node)]));
    const double begin = l.begin * scale, end = l.end * scale;
    for (auto c = static_cast<std::size_t>(begin); c < kCells && static_cast<double>(c) < end; ++c) {
      const double part = std::min(end, static_cast<double>(c) + 1) - std::max(begin, static_cast<double>(c));
      filled[c][fill] += part;
      if (path.count(k)) late[c] += part;
    }
  }
  std::string out;
  for (std::size_t c = 0; c < kCells; ++c) {
    const auto& of = filled[c];
    double all = 0;
    for (double part : of) all += part;
    const char letter = letters[static_cast<std::size_t>(std::max_element(of.begin(), of.end()) - of.begin())];
    if (all < 0.5) out += '.';
    else out += late[c] > all / 2 ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter;
  }
  return out;
}

}  // namespace

std::string describe_timeline(const PlacedGraph& plan, const Forecast& f) {
  if (f.seconds <= 0) return "a step takes no time: there is nothing to show\n";
  std::map<int, std::vector<int>> launches;
  for (std::size_t k = 0; k < f.launches.size(); ++k) launches[f.launches[k].stream].push_back(static_cast<int>(k));
  const std::set<int> path(f.path.begin(), f.path.end());
  std::string out = picture::shortened(fmt::format("{}, {}: {} a step", plan.graph->name, describe_batch(plan), human_seconds(f.seconds)), kColumns) + "\n";
  const std::string end = human_seconds(f.seconds), half = human_seconds(f.seconds / 2);
  out += fmt::format("{:<{}}0{:>{}}{:>{}}\n", "", kName + 1, half, kCells / 2, end, kCells / 2 - 1);
  std::size_t lines = 0, left = 0;
  for (const auto& [stream, name] : picture::timeline_streams(plan, f, kMostStreams)) {
    if (++lines > kMostStreams) {
      ++left;
      continue;
    }
    double busy = 0;
    for (int k : launches[stream]) busy += f.launches[static_cast<std::size_t>(k)].end - f.launches[static_cast<std::size_t>(k)].begin;
    out += fmt::format("{} {} {:>3.0f} %\n", padded(name, kName), cells_of(plan, f, launches[stream], path), 100 * busy / f.seconds);
  }
  if (left) out += fmt::format("and {} streams more\n", left);
  out += "i input, c copies, f forward, b backward, a aggregate, u update, . idle;\nCAPITALS: the critical path, most of it\n";
  const std::vector<PathShare> shares = path_shares(plan, f);
  for (std::size_t i = 0; i < std::min(shares.size(), kMostShares); ++i)
    out += fmt::format("{:>9} {:>4.0f} %  {}\n", human_seconds(shares[i].seconds), 100 * shares[i].seconds / f.seconds, picture::shortened(shares[i].node + " on " + shares[i].device, 62));
  return out;
}

Forecast as_measured(const BoundPlan& bound, const Forecast& forecast, const std::vector<std::pair<double, double>>& times) {
  Forecast out = forecast;
  out.seconds = 0;
  std::vector<std::size_t> first;  // of each stream
  std::map<int, std::vector<std::size_t>> threads;
  for (std::size_t s = 0, all = 0; s < bound.streams.size(); ++s) {
    first.push_back(all);
    for (std::size_t i = 0; i < bound.streams[s].size(); ++i) threads[bound.plan.streams[s].thread].push_back(all + i);
    all += bound.streams[s].size();
  }
  for (std::size_t k = 0; k < times.size(); ++k) {
    out.launches[k].begin = times[k].first;
    out.launches[k].end = times[k].first + times[k].second;
    out.seconds = std::max(out.seconds, out.launches[k].end);
  }
  auto end_of = [&](std::size_t k) { return out.launches[k].end; };
  // Backwards: each launch began when the last of what it waited for had ended.
  out.path.clear();
  if (out.launches.empty()) return out;
  std::size_t at = 0;
  for (std::size_t k = 1; k < out.launches.size(); ++k)
    if (end_of(k) > end_of(at)) at = k;
  for (std::vector<bool> seen(out.launches.size()); !seen[at];) {
    seen[at] = true;
    out.path.push_back(static_cast<int>(at));
    const auto stream = static_cast<std::size_t>(out.launches[at].stream);
    std::vector<std::size_t> before;
    if (at > first[stream]) before.push_back(at - 1);
    for (const StepWait& w : bound.streams[stream][at - first[stream]].waits)
      if (w.count > 0) before.push_back(first[static_cast<std::size_t>(w.stream)] + static_cast<std::size_t>(w.count) - 1);
    for (std::size_t k : threads[bound.plan.streams[stream].thread])
      if (k != at && end_of(k) <= out.launches[at].begin) before.push_back(k);
    for (std::size_t k : before)
      if (!seen[k] && (seen[at] || end_of(k) > end_of(at))) at = k;
  }
  std::reverse(out.path.begin(), out.path.end());
  return out;
}

}  // namespace belfry
