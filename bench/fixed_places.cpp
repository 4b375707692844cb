#include "fixed_places.h"

#include <algorithm>
#include <numeric>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr int kForever = 1 << 30;
constexpr std::size_t kMostLooked = 40'000;  // buffers, of all moments

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

FixedPlaces::FixedPlaces(const BoundPlan& bound) : bound_(bound), buffers_(bound.plan.cluster.devices.size()) {
  const std::vector<std::pair<int, int>> order = legal_order(bound);
  for (const auto& s : bound.streams) place_.emplace_back(s.size());
  for (std::size_t k = 0; k < order.size(); ++k) place_[index(order[k].first)][index(order[k].second)] = static_cast<std::int64_t>(k);
  set_clocks(order);
  set_buffers(order);
}

std::vector<std::int64_t> FixedPlaces::least_bytes() const {
  std::vector<std::int64_t> out;
  for (const std::vector<Buffer>& all : buffers_) out.push_back(least_bytes_of(all));
  return out;
}

std::int64_t FixedPlaces::least_bytes_of(const std::vector<Buffer>& all) const {
  if (all.empty()) return 0;
  auto larger = [&](std::size_t a, std::size_t b) { return all[a].bytes > all[b].bytes; };
  Numbers whole(all.size());
  std::iota(whole.begin(), whole.end(), std::size_t{0});
  Numbers by_size = whole;
  std::stable_sort(by_size.begin(), by_size.end(), larger);
  std::int64_t most = 0;
  auto meets_all = [&](std::size_t i, const Numbers& others) {
    return std::all_of(others.begin(), others.end(), [&](std::size_t o) { return o != i && !before(all[i], all[o]) && !before(all[o], all[i]); });
  };
  auto grow = [&](Numbers first) {
    std::stable_sort(first.begin(), first.end(), larger);
    first.insert(first.end(), by_size.begin(), by_size.end());
    Numbers kept;
    std::int64_t bytes = 0;
    for (std::size_t i : first) {
      if (!meets_all(i, kept)) continue;
      kept.push_back(i);
      bytes += all[i].bytes;
    }
    most = std::max(most, bytes);
  };
  std::map<int, Numbers> of_stream;
  for (std::size_t i : whole) of_stream[all[i].written.first].push_back(i);
  Numbers each;
  for (const auto& [stream, own] : of_stream)
    if (bound_.plan.streams[index(stream)].name != "main") {
      const Numbers mine = fullest(all, own, 1).front();
      each.insert(each.end(), mine.begin(), mine.end());
    }
  grow(each);
  for (const Numbers& moment : fullest(all, whole, std::clamp<std::size_t>(kMostLooked / all.size(), 1, 32))) grow(moment);
  return most;
}

void FixedPlaces::set_clocks(const std::vector<std::pair<int, int>>& order) {
  for (const auto& s : bound_.streams) clocks_.emplace_back(s.size(), std::vector<int>(bound_.streams.size()));
  for (auto [s, k] : order) {
    std::vector<int>& mine = clocks_[index(s)][index(k)];
    auto after = [&](int stream, int count) {
      if (count == 0) return;
      const std::vector<int>& theirs = clocks_[index(stream)][index(count) - 1];
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
      mine[index(stream)] = std::max(mine[index(stream)], count);
    };
    after(s, k);
    for (const StepWait& w : bound_.streams[index(s)][index(k)].waits) after(w.stream, w.count);
  }
}

void FixedPlaces::set_buffers(const std::vector<std::pair<int, int>>& order) {
  std::map<Tag, Buffer> known;
  for (auto [s, k] : order) {
    const Step& step = bound_.streams[index(s)][index(k)];
    const PlanNode& n = bound_.plan.nodes[index(step.node)];
    for (const auto& parts : step.reads)
      for (const Part& p : parts)
        if (auto at = known.find(p.buffer.tag); at != known.end()) at->second.used[s] = std::max(at->second.used[s], k + 1);
    for (const auto& parts : step.writes)
      for (const Part& p : parts)
        if (p.buffer.space >= 0 && std::none_of(n.donates.begin(), n.donates.end(), [&](auto d) { return d.first == p.buffer.tag.value; }))
          known[p.buffer.tag] = {aligned_bytes(p.buffer.bytes), p.buffer.at, {s, k + 1}, {{s, n.op == kFetch ? kForever : k + 1}}};
    if (step.scratch.bytes) buffers_[index(step.device)].push_back({aligned_bytes(step.scratch.bytes), step.scratch.at, {s, k + 1}, {{s, k + 1}}});
  }
  for (const auto& [tag, b] : known)
    if (b.bytes) buffers_[index(tag.device)].push_back(b);
}

/// Whether the plan's waits let none use y before all have used x; what is written in place of what its step reads begins behind it.
bool FixedPlaces::before(const Buffer& x, const Buffer& y) const {
  const std::vector<int>& clock = clocks_[index(y.written.first)][index(y.written.second) - 1];
  return std::all_of(x.used.begin(), x.used.end(), [&](const std::pair<const int, int>& u) { return clock[index(u.first)] >= u.second || (x.at == y.at && std::pair<int, int>(u) == y.written); });
}

/// What of some buffers is in use at the moments, so many, at which most of their bytes are.
std::vector<FixedPlaces::Numbers> FixedPlaces::fullest(const std::vector<Buffer>& all, const Numbers& some, std::size_t count) const {
  std::map<std::int64_t, std::int64_t> change;
  auto first = [&](const Buffer& b) { return place_[index(b.written.first)][index(b.written.second) - 1]; };
  auto last = [&](const Buffer& b) {
    std::int64_t out = 0;
    for (auto [s, k] : b.used) out = std::max(out, k == kForever ? kForever : place_[index(s)][index(k) - 1]);
    return out;
  };
  for (std::size_t i : some) change[first(all[i])] += all[i].bytes, change[last(all[i]) + 1] -= all[i].bytes;
  std::vector<std::pair<std::int64_t, std::int64_t>> moments;
  std::int64_t now = 0;
  for (auto [at, by] : change) moments.emplace_back(-(now += by), at);
  std::sort(moments.begin(), moments.end());
  std::vector<Numbers> out;
  for (std::size_t m = 0; m < std::min(count, moments.size()); ++m) {
    Numbers& mine = out.emplace_back();
    for (std::size_t i : some)
      if (first(all[i]) <= moments[m].second && moments[m].second <= last(all[i])) mine.push_back(i);
  }
  return out;
}

}  // namespace belfry
