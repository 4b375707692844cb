#include <belfry/graph/plan/watcher.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

constexpr std::size_t kMostReports = 64;

std::pair<std::size_t, std::size_t> cell_range(const BufferRef& b) {
  return {static_cast<std::size_t>(b.at / kAlignment), static_cast<std::size_t>((b.at + b.bytes + kAlignment - 1) / kAlignment)};
}

}  // namespace

Watcher::Watcher(const BoundPlan& bound) : bound_(bound) {
  std::size_t n = bound.streams.size();
  for (std::int64_t bytes : bound.arena_bytes) cells_.emplace_back(static_cast<std::size_t>((bytes + kAlignment - 1) / kAlignment));
  clock_.assign(n, std::vector<int>(n));
  for (const auto& steps : bound.streams) after_.emplace_back(steps.size() + 1);
  for (const StateBuffer& s : bound.state) {
    auto [first, past] = cell_range(s.buffer);
    for (std::size_t i = first; i < std::min(past, cells_[static_cast<std::size_t>(s.buffer.space)].size()); ++i) cells_[static_cast<std::size_t>(s.buffer.space)][i].tag = id(s.buffer.tag);
  }
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
  after_[static_cast<std::size_t>(step.stream)][static_cast<std::size_t>(step.sequence)] = clock;
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
  auto& cells = cells_[static_cast<std::size_t>(buffer.space)];
  auto [first, past] = cell_range(buffer);
  int tag = id(buffer.tag);
  for (std::size_t i = first; i < past && i < cells.size(); ++i) {
    Cell& c = cells[i];
    if (c.write > clock[static_cast<std::size_t>(c.writer)]) return report(fmt::format("missing wait: {} reads '{}' while it is written", name(step), bound_.plan.value(buffer.tag.value).name));
    if (c.tag != tag) return report(fmt::format("overlap: {} reads '{}', but other bytes are there", name(step), bound_.plan.value(buffer.tag.value).name));
    if (c.reads.empty()) c.reads.resize(clock.size());
    c.reads[static_cast<std::size_t>(step.stream)] = step.sequence;
  }
}

void Watcher::check_write(const Step& step, const BufferRef& buffer) {
  const std::vector<int>& clock = clock_[static_cast<std::size_t>(step.stream)];
  auto& cells = cells_[static_cast<std::size_t>(buffer.space)];
  auto [first, past] = cell_range(buffer);
  for (std::size_t i = first; i < past && i < cells.size(); ++i) {
    Cell& c = cells[i];
    bool late = c.write > clock[static_cast<std::size_t>(c.writer)];
    for (std::size_t s = 0; s < c.reads.size() && !late; ++s) late = c.reads[s] > clock[s];
    if (late) {
      std::string what = buffer.tag.value >= 0 ? fmt::format("'{}'", bound_.plan.value(buffer.tag.value).name) : "its scratch";
      return report(fmt::format("missing wait: {} writes {} over bytes that another stream still uses", name(step), what));
    }
    c.writer = step.stream;
    c.write = step.sequence;
    c.tag = id(buffer.tag);
    std::fill(c.reads.begin(), c.reads.end(), 0);
  }
}

bool Watcher::holds(const BufferRef& buffer, const Tag& tag) const {
  auto known = ids_.find(tag);
  if (buffer.bytes == 0) return true;
  if (known == ids_.end()) return false;
  auto [first, past] = cell_range(buffer);
  const auto& cells = cells_[static_cast<std::size_t>(buffer.space)];
  for (std::size_t i = first; i < past && i < cells.size(); ++i)
    if (cells[i].tag != known->second) return false;
  return true;
}

}  // namespace belfry
