#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe_forecast.h>
#include <belfry/frontends/draw/plan_boxes_internal.h>
#include <belfry/frontends/draw/svg_internal.h>

namespace belfry::picture {

namespace {

constexpr double kNames = 118, kRow = 15;
constexpr std::size_t kMostRows = 24;

/// A third of a pixel each: what fills most of it.
std::string stream_row(const PlacedGraph& plan, const Forecast& f, const std::vector<int>& launches, double x, double y, double width) {
  const auto cells = static_cast<std::size_t>(width * 3);
  const double scale = static_cast<double>(cells) / f.seconds;
  std::vector<std::array<float, 6>> filled(cells + 1);
  for (int k : launches) {
    const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
    const auto fill = static_cast<std::size_t>(fill_of(plan, plan.nodes[static_cast<std::size_t>(l.node)]));
    const double begin = l.begin * scale, end = l.end * scale;
    for (auto c = static_cast<std::size_t>(begin); c <= std::min(cells, static_cast<std::size_t>(end)); ++c)
      filled[c][fill] += static_cast<float>(std::min(end, static_cast<double>(c) + 1) - std::max(begin, static_cast<double>(c)));
  }
  std::string out;
  auto most_of = [&](std::size_t c) {
    const auto& of = filled[c];
    float all = 0;
    for (float part : of) all += part;
    return all < 0.5f ? -1 : static_cast<int>(std::max_element(of.begin(), of.end()) - of.begin());
  };
  for (std::size_t c = 0; c < cells;) {
    const int most = most_of(c);
    std::size_t end = c + 1;
    while (end < cells && most_of(end) == most) ++end;
    const double at = x + static_cast<double>(c) / 3, wide = static_cast<double>(end - c) / 3;
    if (most >= 0) out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"9\" class=\"{}\"/>", at, y, wide, to_string(static_cast<Fill>(most)));
    c = end;
  }
  return out;
}

std::string path_row(const Forecast& f, int stream, double x, double y, double width) {
  std::string out;
  double begin = -1, end = -1;
  auto flush = [&] {
    if (end > begin) out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"2\" class=\"late-line\"/>", x + begin, y + 10, std::max(0.4, end - begin));
  };
  for (int k : f.path) {
    const ForecastLaunch& l = f.launches[static_cast<std::size_t>(k)];
    if (l.stream != stream) continue;
    const double from = l.begin / f.seconds * width, to = l.end / f.seconds * width;
    if (from - end > 0.6) {
      flush();
      begin = from;
    }
    end = to;
  }
  flush();
  return out;
}

}  // namespace

std::vector<std::pair<int, std::string>> timeline_streams(const PlacedGraph& plan, const Forecast& f, std::size_t most) {
  std::map<int, double> end;     // of streams
  std::map<int, double> latest;  // of devices
  for (const ForecastLaunch& l : f.launches) {
    end[l.stream] = std::max(end[l.stream], l.end);
    latest[l.device] = std::max(latest[l.device], l.end);
  }
  std::vector<std::pair<int, std::string>> out;
  for (const Column& c : lanes_of(plan, end.size() > most).columns) {
    const int shown = *std::max_element(c.devices.begin(), c.devices.end(), [&](int a, int b) { return latest[a] < latest[b]; });
    for (const auto& [stream, when] : end) {
      const PlanStream& s = plan.streams[static_cast<std::size_t>(stream)];
      if (s.device != shown) continue;
      out.emplace_back(stream, to_string(plan.cluster.devices[static_cast<std::size_t>(shown)].id) + " " + s.name + (c.devices.size() > 1 ? fmt::format(" ×{}", c.devices.size()) : ""));
    }
  }
  return out;
}

std::string svg_timeline(const PlacedGraph& plan, const Forecast& f, double x, double y, double width, double& height) {
  const auto streams = timeline_streams(plan, f, kMostRows / 2);
  std::map<int, std::vector<int>> launches;
  for (std::size_t k = 0; k < f.launches.size(); ++k) launches[f.launches[k].stream].push_back(static_cast<int>(k));
  const double left = x + kNames, wide = width - kNames - 4;
  std::string out = svg_text(x, y + 10, "b", "the step");
  for (int mark = 0; mark <= 4; ++mark)
    out += svg_text(left + wide * mark / 4, y + 10, "f", mark ? human_seconds(f.seconds * mark / 4) : "0", mark == 0 ? "start" : mark == 4 ? "end" : "middle");
  out += "\n";
  double at = y + 18;
  for (std::size_t i = 0; i < std::min(streams.size(), kMostRows); ++i, at += kRow) {
    const auto& [stream, name] = streams[i];
    out += svg_text(x, at + 8, "f", name);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"9\" class=\"idle\"/>", left, at, wide);
    out += stream_row(plan, f, launches[stream], left, at, wide) + path_row(f, stream, left, at, wide) + "\n";
  }
  if (streams.size() > kMostRows) out += svg_text(x, at + 8, "f", fmt::format("and {} streams more", streams.size() - kMostRows)), at += kRow;
  out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"2\" class=\"late-line\"/>", left, at + 5) + svg_text(left + 20, at + 9, "f", "the critical path") + "\n";
  height = at + kRow - y;
  return out;
}

}  // namespace belfry::picture
