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
  awaited_.resize(n);
  for (std::size_t s = 0; s < n; ++s) awaited_[s].resize(bound.streams[s].size() + 1);
  auto add_all = [&](const Step& step) {
    for (const auto* all : {&step.reads, &step.writes})
      for (const auto& parts : *all)
        for (const Part& p : parts) add(p.buffer);
    if (step.scratch.bytes) add(step.scratch);
    for (const StepWait& w : step.waits) awaited_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count)] = true;
  };
  for (const auto& steps : bound.streams) std::for_each(steps.begin(), steps.end(), add_all);
  std::for_each(bound.once.begin(), bound.once.end(), add_all);
  for (const StateBuffer& s : bound.state) add(s.buffer);
  for (auto& edges : edges_) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    cells_.emplace_back(edges.size());
  }
  clock_.assign(n, std::vector<int>(n));
  for (const auto& steps : bound.streams) after_.emplace_back(steps.size() + 1);
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

void Watcher::begin(const Step& step) {
  std::vector<int>& clock = clock_[static_cast<std::size_t>(step.stream)];
  for (const StepWait& w : step.waits) {
    const std::vector<int>& other = after_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count)];
    for (std::size_t s = 0; s < other.size(); ++s) clock[s] = std::max(clock[s], other[s]);
  }
  clock[static_cast<std::size_t>(step.stream)] = step.sequence;
  if (awaited_[static_cast<std::size_t>(step.stream)][static_cast<std::size_t>(step.sequence)]) after_[static_cast<std::size_t>(step.stream)][static_cast<std::size_t>(step.sequence)] = clock;
  for (const auto& parts : step.reads)
    for (const Part& p : parts)
      if (p.buffer.space >= 0) check_read(step, p.buffer);
  if (step.scratch.bytes) check_write(step, step.scratch);
  for (const auto& parts : step.writes)
    for (const Part& p : parts)
      if (p.buffer.space >= 0) check_write(step, p.buffer);
}

void Watcher::check_read(const Step& step, const BufferRef& buffer) {
  const std::vector<int>& clock = clock_[static_cast<std::size_t>(step.stream)];
  int tag = id(buffer.tag);
  for (Cell& c : cells(buffer)) {
    if (c.write > clock[static_cast<std::size_t>(c.writer)]) return report(fmt::format("missing wait: {} reads '{}' while it is written", name(step), bound_.plan.value(buffer.tag.value).name));
    if (c.tag != tag) return report(fmt::format("overlap: {} reads '{}', but other bytes are there", name(step), bound_.plan.value(buffer.tag.value).name));
    auto at = std::lower_bound(c.reads.begin(), c.reads.end(), std::pair(step.stream, 0));
    if (at == c.reads.end() || at->first != step.stream) at = c.reads.insert(at, {step.stream, 0});
    at->second = step.sequence;
  }
}

void Watcher::check_write(const Step& step, const BufferRef& buffer) {
  const std::vector<int>& clock = clock_[static_cast<std::size_t>(step.stream)];
  for (Cell& c : cells(buffer)) {
    const bool late = c.write > clock[static_cast<std::size_t>(c.writer)] ||
                      std::any_of(c.reads.begin(), c.reads.end(), [&](const auto& r) { return r.second > clock[static_cast<std::size_t>(r.first)]; });
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
