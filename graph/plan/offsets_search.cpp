#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

/// Time between two neighbouring starts or ends, so that the same blocks are live all through it.
struct Section {
  std::vector<int> blocks;
  std::int64_t left = 0;   ///< bytes of its blocks that have no place yet
  std::int64_t floor = 0;  ///< the lowest place that one of them can have
};

struct Lasting {
  int first = 0, past = 0;  ///< sections
  std::vector<int> overlaps;
  std::int64_t lowest = 0;  ///< above all that overlaps it and has a place
  bool placed = false;
};

enum class Answer { found, none, spent };

class Search {
 public:
  Search(const std::vector<Block>& blocks, std::int64_t limit) : blocks_(blocks), limit_(limit), lasting_(blocks.size()), offsets_(blocks.size()), marked_() {
    std::vector<std::int64_t> edges;
    for (const Block& b : blocks) edges.push_back(b.start), edges.push_back(b.end + 1);
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    auto section = [&](std::int64_t at) { return static_cast<int>(std::lower_bound(edges.begin(), edges.end(), at) - edges.begin()); };
    sections_.resize(edges.size());
    crossing_.resize(edges.size());
    marked_.resize(edges.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      Lasting& l = lasting_[b];
      l.first = section(blocks[b].start), l.past = section(blocks[b].end + 1);
      for (int s = l.first; s < l.past; ++s) {
        at(s).blocks.push_back(static_cast<int>(b));
        at(s).left += blocks[b].size;
        if (s > l.first) ++crossing_[static_cast<std::size_t>(s)];
      }
      for (std::size_t other = 0; other < b; ++other)
        if (blocks[other].start <= blocks[b].end && blocks[b].start <= blocks[other].end) {
          l.overlaps.push_back(static_cast<int>(other));
          lasting_[other].overlaps.push_back(static_cast<int>(b));
        }
    }
  }

  /// `rule` 0 to 2: which of the blocks that could lie at one place is tried first.
  Answer run(int rule, std::int64_t& steps) {
    rule_ = rule;
    steps_ = &steps;
    std::vector<int> all(blocks_.size());
    std::iota(all.begin(), all.end(), 0);
    return parts(all, 0, static_cast<int>(sections_.size()));
  }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

 private:
  struct Part {
    std::vector<int> order;  ///< blocks, the most urgent first
    int first = 0, past = 0;
  };
  struct Undo {
    std::vector<std::pair<int, std::int64_t>> lowest, floors;
  };

  Section& at(int s) { return sections_[static_cast<std::size_t>(s)]; }
  Lasting& of(int b) { return lasting_[static_cast<std::size_t>(b)]; }
  std::int64_t size(int b) const { return blocks_[static_cast<std::size_t>(b)].size; }

  /// Blocks without a place, cut where none of them crosses; each part is solved by itself.
  Answer parts(const std::vector<int>& blocks, int first, int past) {
    for (int from = first, to = first + 1; to <= past; ++to) {
      if (to < past && crossing_[static_cast<std::size_t>(to)]) continue;
      Part part{{}, from, to};
      for (int b : blocks)
        if (!of(b).placed && of(b).first >= from && of(b).past <= to) part.order.push_back(b);
      from = to;
      if (part.order.empty()) continue;
      sort_by_urgency(part.order);
      if (Answer a = place_next(part, 0, -1); a != Answer::found) return a;
    }
    return Answer::found;
  }

  void sort_by_urgency(std::vector<int>& order) {
    std::vector<std::tuple<double, double, double, int>> keys;
    for (int b : order) {
      const Block& block = blocks_[static_cast<std::size_t>(b)];
      std::int64_t total = 0;
      for (int s = of(b).first; s < of(b).past; ++s) total = std::max(total, at(s).left);
      double length = -static_cast<double>(block.end - block.start + 1), area = length * static_cast<double>(block.size), most = -static_cast<double>(total);
      if (rule_ == 0) keys.emplace_back(length, area, most, b);
      else if (rule_ == 1) keys.emplace_back(most, area, length, b);
      else keys.emplace_back(most, length, area, b);
    }
    std::sort(keys.begin(), keys.end());
    for (std::size_t i = 0; i < keys.size(); ++i) order[i] = std::get<3>(keys[i]);
  }

  /// Blocks are placed from low to high; at one offset by urgency, so that no set of placings comes twice.
  Answer place_next(const Part& part, std::int64_t above, int behind) {
    std::int64_t least_top = kNone;  // what would lie at or above it leaves a gap that a block fits into
    for (int b : part.order)
      if (!of(b).placed) least_top = std::min(least_top, of(b).lowest + size(b));
    if (least_top == kNone) return Answer::found;
    std::vector<std::pair<std::int64_t, int>> candidates;  // offset, place in the order
    for (int k = 0; k < static_cast<int>(part.order.size()); ++k)
      if (const Lasting& l = of(part.order[static_cast<std::size_t>(k)]); !l.placed && l.lowest < least_top && std::pair(l.lowest, k) > std::pair(above, behind)) candidates.emplace_back(l.lowest, k);
    std::sort(candidates.begin(), candidates.end());
    std::int64_t highest = limit_;  // where all that is left must begin: above it some section would overflow
    for (int s = part.first; s < part.past; ++s)
      if (at(s).left) highest = std::min(highest, limit_ - at(s).left);
    for (auto [offset, k] : candidates) {
      if (offset > highest) break;
      if (--*steps_ < 0) return Answer::spent;
      const int b = part.order[static_cast<std::size_t>(k)];
      Undo undo;
      put(b, offset, undo);
      Answer answer = Answer::none;
      if (touched_fit()) answer = go_on(part, b, offset, k);
      take_back(b, undo);
      if (answer != Answer::none) return answer;
    }
    return Answer::none;
  }

  Answer go_on(const Part& part, int b, std::int64_t offset, int k) {
    bool falls_apart = false;
    for (int s = of(b).first + 1; s < of(b).past; ++s) falls_apart = --crossing_[static_cast<std::size_t>(s)] == 0 || falls_apart;
    Answer answer = falls_apart ? parts(part.order, part.first, part.past) : place_next(part, offset, k);
    for (int s = of(b).first + 1; s < of(b).past; ++s) ++crossing_[static_cast<std::size_t>(s)];
    return answer;
  }

  void put(int b, std::int64_t offset, Undo& undo) {
    offsets_[static_cast<std::size_t>(b)] = offset;
    of(b).placed = true;
    const std::int64_t top = offset + size(b);
    ++mark_;
    touched_.clear();
    auto touch = [&](int s) {
      if (marked_[static_cast<std::size_t>(s)] == mark_) return;
      marked_[static_cast<std::size_t>(s)] = mark_;
      touched_.push_back(s);
    };
    for (int s = of(b).first; s < of(b).past; ++s) {
      at(s).left -= size(b);
      if (at(s).floor == offset) touch(s);
    }
    for (int other : of(b).overlaps) {
      Lasting& l = of(other);
      if (l.placed || l.lowest >= top) continue;
      undo.lowest.emplace_back(other, l.lowest);
      for (int s = l.first; s < l.past; ++s)
        if (at(s).floor == l.lowest) touch(s);
      l.lowest = top;
    }
    for (int s : touched_) {
      std::int64_t floor = kNone;
      for (int other : at(s).blocks)
        if (!of(other).placed) floor = std::min(floor, of(other).lowest);
      undo.floors.emplace_back(s, at(s).floor);
      at(s).floor = floor;
    }
  }

  void take_back(int b, const Undo& undo) {
    for (auto [s, floor] : undo.floors) at(s).floor = floor;
    for (auto [other, lowest] : undo.lowest) of(other).lowest = lowest;
    for (int s = of(b).first; s < of(b).past; ++s) at(s).left += size(b);
    of(b).placed = false;
  }

  /// Whatever has no place yet lies at or above its section's floor.
  bool touched_fit() {
    return std::all_of(touched_.begin(), touched_.end(), [&](int s) { return !at(s).left || at(s).floor + at(s).left <= limit_; });
  }

  const std::vector<Block>& blocks_;
  std::int64_t limit_;
  std::vector<Lasting> lasting_;
  std::vector<Section> sections_;
  std::vector<int> crossing_;  ///< per section: blocks without a place that are live before it and in it
  std::vector<std::int64_t> offsets_;
  std::vector<int> marked_, touched_;
  int mark_ = 0, rule_ = 0;
  std::int64_t* steps_ = nullptr;
};

}  // namespace

std::vector<std::int64_t> search_offsets(const std::vector<Block>& blocks, std::int64_t limit, std::int64_t& steps) {
  if (live_maximum(blocks) > limit) return {};
  Search search(blocks, limit);
  // Each rule in turn with twice as many steps: where one is lost, another is often quick.
  for (std::int64_t some = 4 * static_cast<std::int64_t>(blocks.size()) + 4; steps > 0; some *= 2)
    for (int rule : {0, 1, 2}) {
      std::int64_t left = std::min(some, steps);
      const std::int64_t given = left;
      Answer answer = search.run(rule, left);
      steps -= given - std::max<std::int64_t>(left, 0);
      if (answer == Answer::found) return search.offsets();
      if (answer == Answer::none) return {};
      if (steps <= 0) break;
    }
  return {};
}

}  // namespace belfry
