#include "live_bytes.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/structural.h>

namespace belfry::test {

namespace {

struct Life {
  double begin = 0, end = 0;
  BufferRef buffer;
};

std::int64_t most_at_once(std::vector<Life> lives) {
  std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.begin < b.begin; });
  std::vector<std::pair<double, std::int64_t>> changes;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    const BufferRef& mine = lives[i].buffer;
    double end = lives[i].end;
    for (std::size_t j = i + 1; j < lives.size() && lives[j].begin < end; ++j)
      if (const BufferRef& b = lives[j].buffer; b.at < mine.at + mine.bytes && mine.at < b.at + b.bytes) end = lives[j].begin;
    changes.emplace_back(lives[i].begin, mine.bytes), changes.emplace_back(end, -mine.bytes);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = 0, out = 0;
  for (auto [time, by] : changes) out = std::max(out, now += by);
  return out;
}

}  // namespace

std::vector<std::int64_t> live_bytes(const PlacedGraph& plan, const Forecast& forecast) {
  const BoundPlan bound(plan);
  std::set<ValueIndex> donated;
  for (const PlanNode& n : plan.nodes)
    for (auto [u, variable] : n.donates) donated.insert(u);
  std::map<Tag, Life> lives;
  std::vector<std::vector<Life>> of_device(plan.cluster.devices.size());
  std::size_t k = 0;
  for (const auto& stream : bound.streams)
    for (const Step& step : stream) {
      const ForecastLaunch& l = forecast.launches.at(k++);
      const bool fetched = is_op(plan.nodes[static_cast<std::size_t>(step.node)], kFetch);
      for (const auto& parts : step.writes)
        for (const Part& p : parts)
          if (p.buffer.space >= 0 && p.buffer.bytes > 0 && !donated.contains(p.buffer.tag.value)) lives[p.buffer.tag] = {l.begin, fetched ? forecast.seconds : l.end, p.buffer};
      if (step.scratch.bytes) of_device[static_cast<std::size_t>(step.device)].push_back({l.begin, l.end, step.scratch});
    }
  k = 0;
  for (const auto& stream : bound.streams)
    for (const Step& step : stream) {
      const double end = forecast.launches.at(k++).end;
      for (const auto& parts : step.reads)
        for (const Part& p : parts)
          if (auto at = lives.find(p.buffer.tag); at != lives.end()) at->second.end = std::max(at->second.end, end);
    }
  for (const auto& [tag, life] : lives) of_device[static_cast<std::size_t>(tag.device)].push_back(life);
  std::vector<std::int64_t> out;
  for (const auto& all : of_device) out.push_back(most_at_once(all));
  for (const StateBuffer& s : bound.state) out[static_cast<std::size_t>(s.device)] += s.buffer.bytes;
  for (const BufferRef& kept : bound.kept) out[static_cast<std::size_t>(kept.tag.device)] += kept.bytes;
  return out;
}

std::string unlike_live_bytes(const PlacedGraph& plan, const Forecast& forecast) {
  const std::vector<std::int64_t> want = live_bytes(plan, forecast);
  std::set<int> first;
  for (const DeviceGroup& g : plan.groups) first.insert(g.devices.front());
  for (const DeviceForecast& d : forecast.devices)
    if (first.contains(d.device) && (d.live != want[static_cast<std::size_t>(d.device)] || d.live > d.bytes))
      return fmt::format("{} is said to have {} bytes in use at once, and has {} of {}", to_string(plan.cluster.devices[static_cast<std::size_t>(d.device)].id), d.live, want[static_cast<std::size_t>(d.device)], d.bytes);
  return "";
}

}  // namespace belfry::test
