#include <belfry/graph/plan/watcher.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

constexpr std::size_t kMostReports = 64;

}  // namespace

Watcher::Watcher(const BoundPlan& bound, bool once) : bound_(bound), edges_(bound.spaces.size()) {
  std::size_t n = bound.streams.size();
  auto add = [&](const BufferRef& b) {
    if (b.space < 0) return;
    auto& edges = edges_[static_cast<std::size_t>(b.space)];
    edges.push_back(b.at);
    edges.push_back(b.at + aligned_bytes(b.bytes));
  };
  waits_.resize(n);
  for (std::size_t s = 0; s < n; ++s) waits_[s].resize(bound.streams[s].size() + 1);
  auto add_all = [&](const Step& step) {
    for (const auto* all : {&step.reads, &step.writes})
      for (const auto& parts : *all)
        for (const Part& p : parts) add(p.buffer);
    if (step.scratch.bytes) add(step.scratch);
    for (const StepWait& w : step.waits) ++waits_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count)];
  };
  for (const auto& steps : bound.streams) std::for_each(steps.begin(), steps.end(), add_all);
  std::for_each(bound.once.begin(), bound.once.end(), add_all);
  for (const StateBuffer& s : bound.state) add(s.buffer);
  for (auto& edges : edges_) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    cells_.emplace_back(edges.size());
  }
  clock_.assign(n, VectorClock(n));
  after_.resize(n);
  for (const StateBuffer& s : bound.state)
    for (Cell& c : cells(s.buffer)) c.tag = id(s.buffer.tag);
  for (const BufferRef& kept : once ? std::vector<BufferRef>() : bound.kept)
    for (Cell& c : cells(kept)) c.tag = id(kept.tag);
}

std::span<Watcher::Cell> Watcher::cells(const BufferRef& b) {
  auto space = static_cast<std::size_t>(b.space);
  auto at = [&](std::int64_t byte) { return static_cast<std::size_t>(std::lower_bound(edges_[space].begin(), edges_[space].end(), byte) - edges_[space].begin()); };
  std::size_t first = at(b.at);
  return std::span(cells_[space]).subspan(first, at(b.at + aligned_bytes(b.bytes)) - first);
}

int Watcher::id(const Tag& tag) { return ids_.try_emplace(tag, static_cast<int>(ids_.size())).first->second; }

std::string Watcher::name(const Step& step) const {
  const std::string& node = bound_.plan.nodes[static_cast<std::size_t>(step.node)].name;
  return step.tower < 0 ? fmt::format("'{}'", node) : fmt::format("'{}' of tower {}", node, step.tower);
}

void Watcher::report(std::string what) {
  if (found_.size() < kMostReports && (found_.empty() || found_.back() != what)) found_.push_back(std::move(what));
}

bool Watcher::follows(const Step& step, int stream, int sequence) const {
  return stream == step.stream || sequence <= clock_[static_cast<std::size_t>(step.stream)].at(stream);
}

void Watcher::begin(const Step& step) {
  VectorClock& clock = clock_[static_cast<std::size_t>(step.stream)];
  for (const StepWait& w : step.waits) {
    auto& after = after_[static_cast<std::size_t>(w.stream)];
    if (const auto at = after.find(w.count); at != after.end()) {
      clock.join(at->second);
      if (--waits_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count)] == 0) after.erase(at);
    }
  }
  if (waits_[static_cast<std::size_t>(step.stream)][static_cast<std::size_t>(step.sequence)] > 0) {
    VectorClock& after = after_[static_cast<std::size_t>(step.stream)][step.sequence] = clock;
    after.set(step.stream, step.sequence);
  }
  for (const auto& parts : step.reads)
    for (const Part& p : parts)
      if (p.buffer.space >= 0) check_read(step, p.buffer);
  if (step.scratch.bytes) check_write(step, step.scratch);
  for (const auto& parts : step.writes)
    for (const Part& p : parts)
      if (p.buffer.space >= 0) check_write(step, p.buffer);
}

void Watcher::check_read(const Step& step, const BufferRef& buffer) {
  int tag = id(buffer.tag);
  for (Cell& c : cells(buffer)) {
    if (!follows(step, c.writer, c.write)) return report(fmt::format("missing wait: {} reads '{}' while it is written", name(step), bound_.plan.value(buffer.tag.value).name));
    if (c.tag != tag) return report(fmt::format("overlap: {} reads '{}', but other bytes are there", name(step), bound_.plan.value(buffer.tag.value).name));
    auto at = std::lower_bound(c.reads.begin(), c.reads.end(), std::pair(step.stream, 0));
    if (at == c.reads.end() || at->first != step.stream) at = c.reads.insert(at, {step.stream, 0});
    at->second = step.sequence;
  }
}

void Watcher::check_write(const Step& step, const BufferRef& buffer) {
  for (Cell& c : cells(buffer)) {
    const bool late = !follows(step, c.writer, c.write) || std::any_of(c.reads.begin(), c.reads.end(), [&](const auto& r) { return !follows(step, r.first, r.second); });
    if (late) {
      std::string what = buffer.tag.value >= 0 ? fmt::format("'{}'", bound_.plan.value(buffer.tag.value).name) : "its scratch";
      return report(fmt::format("missing wait: {} writes {} over bytes that another stream still uses", name(step), what));
    }
    c.writer = step.stream;
    c.write = step.sequence;
    c.tag = id(buffer.tag);
    c.reads.clear();
  }
}

bool Watcher::holds(const BufferRef& buffer, const Tag& tag) {
  auto known = ids_.find(tag);
  if (buffer.bytes == 0) return true;
  if (known == ids_.end()) return false;
  std::span<Cell> mine = cells(buffer);
  return std::all_of(mine.begin(), mine.end(), [&](const Cell& c) { return c.tag == known->second; });
}

}  // namespace belfry
