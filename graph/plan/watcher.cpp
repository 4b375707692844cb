#include <belfry/graph/plan/watcher.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

constexpr std::size_t kMostReports = 64;

std::pair<std::int64_t, std::int64_t> block_range(const BufferRef& b) { return {b.at / kAlignment, (b.at + b.bytes + kAlignment - 1) / kAlignment}; }

}  // namespace

Watcher::Watcher(const BoundPlan& bound) : bound_(bound) {
  std::size_t n = bound.streams.size();
  cells_.resize(bound.arena_bytes.size());
  clock_.assign(n, std::vector<int>(n));
  for (const auto& steps : bound.streams) after_.emplace_back(steps.size() + 1);
  for (const StateBuffer& s : bound.state) {
    auto [first, past] = block_range(s.buffer);
    Cell cell{past, 0, 0, id(s.buffer.tag), {}};
    put(cells_[static_cast<std::size_t>(s.buffer.space)], first, std::move(cell));
  }
}

void Watcher::cut(Cells& cells, std::int64_t block) {
  auto at = cells.lower_bound(block);
  if (at == cells.begin()) return;
  --at;
  if (at->second.past <= block) return;
  Cell rest = at->second;
  at->second.past = block;
  cells.emplace(block, std::move(rest));
}

void Watcher::put(Cells& cells, std::int64_t first, Cell cell) {
  if (cell.past <= first) return;
  cut(cells, first);
  cut(cells, cell.past);
  cells.erase(cells.lower_bound(first), cells.lower_bound(cell.past));
  cells.emplace(first, std::move(cell));
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
  Cells& cells = cells_[static_cast<std::size_t>(buffer.space)];
  auto [first, past] = block_range(buffer);
  int tag = id(buffer.tag);
  auto lost = [&] { report(fmt::format("overlap: {} reads '{}', but other bytes are there", name(step), bound_.plan.value(buffer.tag.value).name)); };
  cut(cells, first);
  cut(cells, past);
  std::int64_t at = first;
  for (auto c = cells.lower_bound(first); at < past; ++c) {
    if (c == cells.end() || c->first != at) return lost();  // nothing was written there
    Cell& cell = c->second;
    if (cell.write > clock[static_cast<std::size_t>(cell.writer)]) return report(fmt::format("missing wait: {} reads '{}' while it is written", name(step), bound_.plan.value(buffer.tag.value).name));
    if (cell.tag != tag) return lost();
    if (cell.reads.empty()) cell.reads.resize(clock.size());
    cell.reads[static_cast<std::size_t>(step.stream)] = step.sequence;
    at = cell.past;
  }
}

void Watcher::check_write(const Step& step, const BufferRef& buffer) {
  const std::vector<int>& clock = clock_[static_cast<std::size_t>(step.stream)];
  Cells& cells = cells_[static_cast<std::size_t>(buffer.space)];
  auto [first, past] = block_range(buffer);
  cut(cells, first);
  cut(cells, past);
  for (auto c = cells.lower_bound(first); c != cells.end() && c->first < past; ++c) {
    const Cell& cell = c->second;
    bool late = cell.write > clock[static_cast<std::size_t>(cell.writer)];
    for (std::size_t s = 0; s < cell.reads.size() && !late; ++s) late = cell.reads[s] > clock[s];
    if (!late) continue;
    std::string what = buffer.tag.value >= 0 ? fmt::format("'{}'", bound_.plan.value(buffer.tag.value).name) : "its scratch";
    return report(fmt::format("missing wait: {} writes {} over bytes that another stream still uses", name(step), what));
  }
  put(cells, first, {past, step.stream, step.sequence, id(buffer.tag), {}});
}

bool Watcher::holds(const BufferRef& buffer, const Tag& tag) const {
  auto known = ids_.find(tag);
  if (buffer.bytes == 0) return true;
  if (known == ids_.end()) return false;
  auto [first, past] = block_range(buffer);
  const Cells& cells = cells_[static_cast<std::size_t>(buffer.space)];
  auto c = cells.upper_bound(first);
  if (c == cells.begin()) return false;
  std::int64_t at = first;
  for (--c; at < past; ++c) {
    if (c == cells.end() || c->first > at || c->second.past <= at || c->second.tag != known->second) return false;
    at = c->second.past;
  }
  return true;
}

}  // namespace belfry
