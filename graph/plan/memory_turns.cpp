#include <belfry/graph/plan/memory_turns_internal.h>

#include <algorithm>
#include <map>

#include <belfry/graph/error.h>

namespace belfry {

SlotTurns::SlotTurns(const PlacedGraph& plan, const MemoryParts& parts, const std::vector<FrameKey>& keys, const std::vector<std::size_t>& streams) : plan_(plan), parts_(parts) {
  for (const FrameKey& key : keys) add_sort(key);
  for (std::size_t s : streams) add_line(plan.streams[s]);
}

void SlotTurns::add_sort(const FrameKey& key) {
  Sort s{key, {}, spans, {}, {}, {}};
  std::vector<int> phase_at;  // per position
  for (int i : parts_.nodes.at(key)) {
    const PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
    const Phase phase{n.epoch, n.phases[static_cast<std::size_t>(key.first)]};
    if (s.phases.empty() || s.phases.back() != phase) s.phases.push_back(phase);
    phase_at.push_back(static_cast<int>(s.phases.size()) - 1);
  }
  std::map<std::pair<int, int>, int> known;
  for (const FrameBlock& b : parts_.layouts.at(key)) {
    const std::pair span{phase_at[static_cast<std::size_t>(b.start)], b.known < static_cast<std::int64_t>(phase_at.size()) ? phase_at[static_cast<std::size_t>(b.known)] : kReleased};
    auto [at, fresh] = known.try_emplace(span, static_cast<int>(s.spans.size()));
    if (fresh) s.spans.push_back(span);
    s.span_of.push_back(at->second);
  }
  s.strided.assign(s.spans.size(), false);
  spans += s.spans.size();
  sorts.push_back(std::move(s));
}

void SlotTurns::add_line(const PlanStream& stream) {
  Line line;
  const std::vector<int> ranks = slot_ranks(plan_, stream);
  std::map<int, std::size_t> number;  // of towers
  line.sorts.resize(ranks.size());
  for (std::size_t e = 0; e < stream.entries.size(); ++e) {
    const StreamEntry& entry = stream.entries[e];
    auto [at, fresh] = number.try_emplace(entry.tower, line.towers.size());
    const int rank = ranks[static_cast<std::size_t>(entry.slot)];
    if (fresh) {
      const int sort = sort_of(entry.tower, stream.device);
      line.towers.push_back({sort, rank, std::vector<int>(sorts[static_cast<std::size_t>(sort)].phases.size(), -1)});
      line.sorts[static_cast<std::size_t>(rank)].insert(sort);
    }
    Line::Tower& tower = line.towers[at->second];
    const std::vector<Phase>& phases = sorts[static_cast<std::size_t>(tower.sort)].phases;
    const auto phase = std::lower_bound(phases.begin(), phases.end(), Phase(entry.epoch, entry.phase)) - phases.begin();
    if (phase < std::ssize(phases)) tower.at[static_cast<std::size_t>(phase)] = static_cast<int>(e);
    if (entry.after >= 0) line.towers[number.at(entry.after)].released = static_cast<int>(e) - 1;
    line.text.push_back({static_cast<int>(at->second), tower.sort, rank, entry.epoch, entry.phase, entry.after < 0 ? -1 : static_cast<int>(number.at(entry.after))});
  }
  auto known = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.text == line.text; });
  if (known == lines.end()) lines.push_back(std::move(line));
  else ++known->streams;
}

int SlotTurns::sort_of(int tower, int device) const {
  for (std::size_t s = 0; s < sorts.size(); ++s) {
    const auto [cls, local] = sorts[s].key;
    const TowerClass& c = plan_.classes[static_cast<std::size_t>(cls)];
    if (!std::binary_search(c.towers.begin(), c.towers.end(), tower)) continue;
    if (parts_.local_on(cls, tower, device) == local) return static_cast<int>(s);
  }
  throw InternalError("a tower of a shared stream has no frame");
}

/// Of each of a tower's spans the first and last entry; the first is past the last where it never runs.
std::vector<std::pair<int, int>> SlotTurns::entries(const Line::Tower& t) const {
  std::vector<std::pair<int, int>> out;
  for (const auto& [first, last] : sorts[static_cast<std::size_t>(t.sort)].spans)
    out.emplace_back(t.at[static_cast<std::size_t>(first)], last == kReleased ? t.released : t.at[static_cast<std::size_t>(last)]);
  return out;
}

/// Spans of towers in different slots that are in use at once.
void SlotTurns::find_meets() {
  std::vector<std::size_t> first;  // per line, its first pair of ranks
  std::size_t pairs = 0;
  for (const Line& line : lines) first.push_back(pairs), pairs += line.sorts.size() * line.sorts.size();
  std::vector<std::vector<bool>> meet(spans * spans, std::vector<bool>(pairs));
  for (std::size_t l = 0; l < lines.size(); ++l) {
    const std::vector<Line::Tower>& towers = lines[l].towers;
    std::vector<std::vector<std::pair<int, int>>> used;
    for (const Line::Tower& t : towers) used.push_back(entries(t));
    for (std::size_t x = 0; x < towers.size(); ++x)
      for (std::size_t y = 0; y < towers.size(); ++y) {
        if (towers[x].rank == towers[y].rank) continue;
        const std::size_t ranks = first[l] + static_cast<std::size_t>(towers[x].rank) * lines[l].sorts.size() + static_cast<std::size_t>(towers[y].rank);
        for (std::size_t a = 0; a < used[x].size(); ++a)
          for (std::size_t b = 0; b < used[y].size(); ++b) {
            if (used[x][a].first > used[y][b].second || used[y][b].first > used[x][a].second) continue;
            meet[number(towers[x].sort, static_cast<int>(a)) * spans + number(towers[y].sort, static_cast<int>(b))][ranks] = true;
            if (towers[x].sort == towers[y].sort && a == b) sorts[static_cast<std::size_t>(towers[x].sort)].strided[a] = true;
          }
      }
  }
  std::map<std::vector<bool>, int> known;
  for (const std::vector<bool>& m : meet) {
    const auto [at, fresh] = known.try_emplace(m, static_cast<int>(known.size()));
    pattern_of.push_back(at->second);
    if (!fresh) continue;
    Meets& pattern = patterns.emplace_back();
    for (std::size_t l = 0; l < lines.size(); ++l)
      for (std::size_t n = lines[l].sorts.size(), k = 0; k < n * n; ++k)
        if (m[first[l] + k]) pattern.emplace_back(static_cast<int>(l), static_cast<int>(k / n), static_cast<int>(k % n));
  }
  for (Line& line : lines) count_rows(line);
}

/// See Line::rows.
void SlotTurns::count_rows(Line& line) const {
  std::vector<std::size_t> made;              // per sort, the phase in which its towers make what is joined
  std::vector<std::int64_t> row(sorts.size());
  std::vector<int> done(sorts.size(), -1);   // per sort, the last entry
  for (std::size_t s = 0; s < sorts.size(); ++s) {
    made.push_back(sorts[s].phases.size() - 1);
    for (std::size_t b = 0; b < blocks(s).size(); ++b)
      if (blocks(s)[b].joined >= 0) row[s] += blocks(s)[b].size, made[s] = std::min(made[s], static_cast<std::size_t>(sorts[s].spans[static_cast<std::size_t>(sorts[s].span_of[b])].first));
  }
  line.rows.assign(sorts.size(), 0);
  for (const Line::Tower& t : line.towers) {
    const auto s = static_cast<std::size_t>(t.sort);
    line.row = std::max(line.row, row[s]), done[s] = std::max(done[s], t.at.back());
  }
  for (const Line::Tower& t : line.towers)
    for (std::size_t s = 0; s < sorts.size(); ++s) line.rows[s] += t.released < kReleased - 1 && t.at[made[static_cast<std::size_t>(t.sort)]] <= done[s];
}

}  // namespace belfry
