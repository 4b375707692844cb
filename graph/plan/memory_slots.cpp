#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory_first_fit_internal.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/memory_turns_internal.h>
#include <belfry/graph/plan/offsets.h>

namespace belfry {

namespace {

/// Comparisons of two blocks for all tries together (each is made less than twice where it was measured), and of spans of two towers, at the most.
constexpr std::size_t kMostCompared = std::size_t{1} << 24, kMostSpans = std::size_t{1} << 27;
/// What SlotPacker tries: strides and orders, the most promising first, since large plans get few.
constexpr std::pair<std::size_t, std::size_t> kTries[] = {{7, 3}, {9, 3}, {8, 3}, {0, 1}, {1, 1}, {1, 2}, {4, 1}, {3, 1}, {0, 2}, {4, 2}, {3, 2}, {5, 1}, {6, 1},
                                                          {0, 3}, {1, 3}, {3, 3}, {2, 1}, {2, 2}, {0, 0}, {1, 0}, {5, 2}, {6, 2}, {10, 3}};
/// Orders that come of changing the best one, at the most.
constexpr int kMostMoved = 64;
constexpr int kRest = 3;  // SlotPacker::band_of
constexpr int kReleased = SlotTurns::kReleased;
using Line = SlotTurns::Line;

/// Where a block may lie: a copy per slot, or one place for all behind the begin of the last.
enum Use { kEach, kOnce };

class SlotPacker {
 public:
  SlotPacker(PlacedGraph& plan, MemoryParts& parts, const std::vector<FrameKey>& keys, const std::vector<std::size_t>& streams)
      : plan_(plan), parts_(parts), turns_(plan, parts, keys, streams), sorts_(turns_.sorts), lines_(turns_.lines), spans_(turns_.spans) {}

  void run() {
    std::size_t compared = 0, all = 0;
    for (const Line& l : lines_) compared += l.towers.size() * l.towers.size();
    for (const SlotTurns::Sort& s : sorts_) all += s.span_of.size();
    if (compared * spans_ * spans_ > kMostSpans || all == 0) return;
    turns_.find_meets();
    for (std::size_t s = 0; s < sorts_.size(); ++s) set_strides(s);
    std::vector<FrameSize> now;
    for (const SlotTurns::Sort& s : sorts_) now.push_back(frame(s.key));
    least_ = bytes_of(now);
    std::size_t slots = 1;
    for (const Line& l : lines_) slots = std::max(slots, l.sorts.size());
    tries_ = 4 * kMostCompared / (all * all * slots);
    for (const auto& [stride, first] : kTries) place(std::vector<std::size_t>(sorts_.size(), stride), first);
    for (std::size_t s = 0; s < sorts_.size() && !best_.empty(); ++s)  // then one sort after the other
      for (const auto& [stride, first] : kTries) {
        std::vector<std::size_t> other = best_strides_;
        other[s] = stride;
        place(other, first);
      }
    if (best_.empty()) return;
    move_last();
    for (std::size_t s = 0; s < sorts_.size(); ++s) {
      std::vector<FrameBlock>& layout = parts_.layouts.at(sorts_[s].key);
      for (std::size_t b = 0; b < layout.size(); ++b) layout[b].slot = {best_[s][b].way == kEach ? Slot::kKept : Slot::kTransient, best_[s][b].at, 0};
      frame(sorts_[s].key) = best_frames_[s];
    }
  }

 private:
  struct Place {
    Use way = kEach;
    std::int64_t at = -1;
  };

  FrameSize& frame(const FrameKey& key) { return plan_.classes[static_cast<std::size_t>(key.first)].frame[static_cast<std::size_t>(key.second)]; }
  const std::vector<FrameBlock>& blocks(std::size_t s) const { return turns_.blocks(s); }

  bool strided(std::size_t s, std::size_t b) const { return sorts_[s].strided[static_cast<std::size_t>(sorts_[s].span_of[b])]; }
  bool stays(std::size_t s, std::size_t b) const { return sorts_[s].spans[static_cast<std::size_t>(sorts_[s].span_of[b])].second == kReleased; }

  /// From as far as a tower needs by itself to as near as can be: copies of one block do not touch.
  void set_strides(std::size_t s) {
    std::vector<Block> all, staying;
    std::vector<std::vector<Block>> bands(kRest + 1);
    std::int64_t least = 0;
    for (std::size_t b = 0; b < blocks(s).size(); ++b) {
      const FrameBlock& x = blocks(s)[b];
      all.push_back({x.size, x.start, x.until});
      bands[static_cast<std::size_t>(band_of(s, b))].push_back(all.back());
      if (strided(s, b)) least = std::max(least, x.size);
      if (stays(s, b)) staying.push_back(all.back());
    }
    const std::int64_t most = std::max(least, live_maximum(all)), either = std::max({least, live_maximum(staying), live_maximum(bands[2])});
    options_.push_back({most, either, least});
    for (std::int64_t part : {1, 2, 3}) options_[s].push_back(least + (most - least) * part / 4);
    options_[s].push_back((least + either) / 2);
    options_[s].push_back(std::max(least, height(bands[1]) + std::max(height(bands[0]), height(bands[2]))));
    for (std::int64_t part : {1, 2, 4}) options_[s].push_back(either + (most - either) * part / 8);
  }

  /// Of first fit, the largest first.
  static std::int64_t height(const std::vector<Block>& blocks) { return pack(blocks, std::numeric_limits<std::int64_t>::max(), 0).peak; }

  /// Where the kept parts of a line begin.
  std::vector<std::int64_t> bases(const Line& line, const std::vector<std::int64_t>& strides) const {
    std::vector<std::int64_t> out;
    std::int64_t at = 0;
    for (const std::set<int>& here : line.sorts) {
      out.push_back(at);
      std::int64_t most = 0;
      for (int s : here) most = std::max(most, strides[static_cast<std::size_t>(s)]);
      at += most;
    }
    return out;
  }

  /// As stream_frames does it, and behind each class what towers make for joins before it is done.
  std::int64_t bytes_of(const std::vector<FrameSize>& frames) const {
    std::vector<std::int64_t> strides;
    for (const FrameSize& f : frames) strides.push_back(f.kept);
    std::int64_t out = 0;
    for (const Line& line : lines_) {
      const std::vector<std::int64_t> begin = bases(line, strides);
      std::int64_t past = 0;
      for (std::size_t rank = 0; rank < begin.size(); ++rank)
        for (int s : line.sorts[rank])
          if (const FrameSize& f = frames[static_cast<std::size_t>(s)]; true)
            past = std::max(past, std::max(begin[rank] + f.kept + f.tail, f.transient ? begin.back() + f.transient : 0) + line.row * line.rows[static_cast<std::size_t>(s)]);
      out += past * line.streams;
    }
    return out;
  }

  using Shifts = std::vector<std::int64_t>;
  static inline const Shifts kHere = {0};

  /// By how much bytes of span y must be moved to be where they are in the way of those of x: in use at once, in different slots.
  const Shifts& shifts(std::size_t x, Use way, std::size_t y, Use other) {
    const auto pattern = static_cast<std::size_t>(turns_.pattern_of[x * spans_ + y]);
    std::optional<Shifts>& known = shifts_[(pattern * 2 + way) * 2 + other];
    if (known) return *known;
    Shifts out;
    for (const auto& [l, r, q] : turns_.patterns[pattern]) {
      const std::vector<std::int64_t>& begin = begins_[static_cast<std::size_t>(l)];
      out.push_back((other == kEach ? begin[static_cast<std::size_t>(q)] : begin.back()) - (way == kEach ? begin[static_cast<std::size_t>(r)] : begin.back()));
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return known.emplace(std::move(out));
  }

  /// From the begin of a sort's slots to that of the last.
  std::vector<Shifts> to_last() const {
    std::vector<std::set<std::int64_t>> out(sorts_.size());
    for (std::size_t l = 0; l < lines_.size(); ++l)
      for (std::size_t r = 0; r < begins_[l].size(); ++r)
        for (int s : lines_[l].sorts[r]) out[static_cast<std::size_t>(s)].insert(begins_[l].back() - begins_[l][r]);
    std::vector<Shifts> lists;
    for (const auto& set : out) lists.emplace_back(set.begin(), set.end());
    return lists;
  }

  /// What the last phase leaves to others lies over what the towers before are done with; behind it what they have made earlier, and
  /// what else lives longer than a phase.
  int band_of(std::size_t s, std::size_t b) const {
    const auto [first, last] = sorts_[s].spans[static_cast<std::size_t>(sorts_[s].span_of[b])];
    return last == kReleased ? (first + 1 == std::ssize(sorts_[s].phases) ? 0 : 1) : first != last ? 2 : kRest;
  }

  using At = std::pair<std::size_t, std::size_t>;  // sort, block
  std::int64_t size(At x) const { return blocks(x.first)[x.second].size; }

  void set_begins(const std::vector<std::size_t>& chosen) {
    strides_.clear(), begins_.clear();
    for (std::size_t s = 0; s < sorts_.size(); ++s) strides_.push_back(aligned_bytes(options_[s][chosen[s]]));
    for (const Line& line : lines_) begins_.push_back(bases(line, strides_));
    shifts_.assign(4 * turns_.patterns.size(), std::nullopt);
    to_last_ = from_last_ = to_last();
    for (Shifts& list : from_last_) {
      std::reverse(list.begin(), list.end());
      for (std::int64_t& by : list) by = -by;
    }
  }

  /// First fit of all blocks: the largest first, or what lives longer than a phase before, or before that what stays, or band by band.
  void place(const std::vector<std::size_t>& chosen, std::size_t first) {
    if (tries_ == 0) return;
    set_begins(chosen);
    std::vector<At> order;
    for (std::size_t s = 0; s < sorts_.size(); ++s)
      for (std::size_t b = 0; b < blocks(s).size(); ++b) order.emplace_back(s, b);
    auto band = [&](At x) { return first == 3 ? band_of(x.first, x.second) : first == 2 && !stays(x.first, x.second) ? 1 : 0; };
    auto key = [&](At x) { return std::tuple(band(x), first > 0 && !strided(x.first, x.second), -size(x)); };
    std::stable_sort(order.begin(), order.end(), [&](At x, At y) { return key(x) < key(y); });
    fit(chosen, order, first == 3);
  }

  /// From the best order on: what ends last comes earlier.
  void move_last() {
    const std::vector<std::size_t> chosen = best_strides_;
    std::vector<At> order = best_order_;
    set_begins(chosen);
    for (int k = kMostMoved; k-- > 0 && tries_ > 0;) {
      const std::size_t last = fit(chosen, order, false, true);
      if (last == 0) break;
      come_earlier(order, last);
    }
  }

  /// Gives the place in the order of what ends last; it gives up where it is no better than the best, unless asked to go on.
  std::size_t fit(const std::vector<std::size_t>& chosen, const std::vector<At>& order, bool in_bands, bool to_the_end = false) {
    --tries_;
    std::vector<std::vector<Place>> places;
    for (std::size_t s = 0; s < sorts_.size(); ++s) places.emplace_back(blocks(s).size());
    std::vector<FrameSize> frames(sorts_.size());
    for (std::size_t s = 0; s < sorts_.size(); ++s) frames[s].kept = strides_[s];
    std::vector<std::int64_t> floor(sorts_.size()), top(sorts_.size());  // behind the bands below
    std::size_t last = 0;
    std::int64_t end = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto [s, b] = order[k];
      Place& at = places[s][b];
      const int band = in_bands ? band_of(s, b) : 0;
      if (k && in_bands && band != band_of(order[k - 1].first, order[k - 1].second)) {
        floor = top;
        if (band == 1) floor.assign(sorts_.size(), *std::max_element(top.begin(), top.end()));  // what stays all along is in nobody's way there
      }
      at = {kEach, lowest(order, k, places, kEach, in_bands && band < kRest ? floor[s] : 0)};
      if (!strided(s, b) && blocks(s)[b].joined < 0)  // joins may be written over what they read, slot by slot
        if (const std::int64_t once = lowest(order, k, places, kOnce, 0); once <= at.at) at = {kOnce, once};
      const std::int64_t past = at.at + size(order[k]);
      if (strided(s, b)) top[s] = std::max(top[s], past);
      std::int64_t& grows = at.way == kOnce ? frames[s].transient : frames[s].tail;
      if (const std::int64_t to = at.way == kOnce ? past : past - strides_[s]; to > grows) {
        grows = to;
        if (!to_the_end && bytes_of(frames) >= least_) return 0;
      }
      if (const std::int64_t mine = ends(s, at.way, past); mine > end) end = mine, last = k;
    }
    if (const std::int64_t bytes = bytes_of(frames); bytes < least_) least_ = bytes, best_ = std::move(places), best_frames_ = std::move(frames), best_strides_ = chosen, best_order_ = order;
    return last;
  }

  /// Where the last copy of a block of a sort ends, with what is made for joins behind it.
  std::int64_t ends(std::size_t s, Use way, std::int64_t past) const {
    std::int64_t out = 0;
    for (std::size_t l = 0; l < lines_.size(); ++l)
      for (std::size_t rank = 0; rank < begins_[l].size(); ++rank)
        if (lines_[l].sorts[rank].contains(static_cast<int>(s))) out = std::max(out, (way == kOnce ? begins_[l].back() : begins_[l][rank]) + past + lines_[l].row * lines_[l].rows[s]);
    return out;
  }

  /// Copies of what lies already: `size` bytes each, from `at` moved by each of `shifts`, ascending.
  struct InTheWay {
    std::int64_t at, size;
    const Shifts* shifts;
    std::size_t next;  ///< the first that does not end before what is looked at
  };

  /// The lowest place from `floor` on: it goes behind what is in the way until nothing is.
  std::int64_t lowest(const std::vector<At>& order, std::size_t k, const std::vector<std::vector<Place>>& places, Use way, std::int64_t floor) {
    const auto [s, b] = order[k];
    const FrameBlock& x = blocks(s)[b];
    const std::size_t span = turns_.number(static_cast<int>(s), sorts_[s].span_of[b]);
    in_the_way_.clear();
    for (std::size_t j = 0; j < k; ++j) {
      const auto [t, c] = order[j];
      const FrameBlock& y = blocks(t)[c];
      const Place& at = places[t][c];
      if (const Shifts& by = shifts(span, way, turns_.number(static_cast<int>(t), sorts_[t].span_of[c]), at.way); !by.empty()) in_the_way_.push_back({at.at, y.size, &by, 0});
      if (s == t && x.start <= y.until && y.start <= x.until) in_the_way_.push_back({at.at, y.size, way == at.way ? &kHere : way == kEach ? &to_last_[s] : &from_last_[s], 0});
    }
    std::int64_t out = floor;
    for (std::size_t free = 0, i = 0; free < in_the_way_.size(); ++i) {
      if (i == in_the_way_.size()) i = 0;
      InTheWay& y = in_the_way_[i];
      ++free;
      for (; y.next < y.shifts->size(); ++y.next) {
        const std::int64_t from = y.at + (*y.shifts)[y.next], past = from + y.size;
        if (past <= out) continue;
        if (from >= out + x.size) break;
        out = past, free = 0;
      }
    }
    return out;
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
  SlotTurns turns_;
  const std::vector<SlotTurns::Sort>& sorts_;
  const std::vector<Line>& lines_;
  const std::size_t& spans_;
  std::vector<std::vector<std::int64_t>> options_;          ///< per sort: how far kept parts may be apart
  std::vector<std::vector<std::int64_t>> begins_;           ///< per line
  std::vector<std::optional<Shifts>> shifts_;               ///< per pattern and ways
  std::vector<Shifts> to_last_, from_last_;                 ///< per sort, and the other way
  std::vector<InTheWay> in_the_way_;
  std::int64_t least_ = 0;
  std::vector<std::vector<Place>> best_;
  std::vector<FrameSize> best_frames_;
  std::vector<std::size_t> best_strides_;
  std::vector<At> best_order_;
  std::vector<std::int64_t> strides_;                       ///< per sort
  std::size_t tries_ = 0;  ///< that are left
};

}  // namespace

void pack_slots(PlacedGraph& plan, MemoryParts& parts) {
  // Classes that share streams, and with whom these do.
  std::map<FrameKey, std::set<std::size_t>> streams_of;
  std::vector<std::vector<FrameKey>> keys_of(plan.streams.size());
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    if (plan.streams[s].name == "main" || plan.streams[s].slots < 1) continue;
    keys_of[s] = parts.frames_on[static_cast<std::size_t>(plan.streams[s].device)];
    for (const FrameKey& key : keys_of[s]) streams_of[key].insert(s);
  }
  std::set<FrameKey> done;
  for (const auto& [start, of_start] : streams_of) {
    std::vector<FrameKey> keys = {start};
    std::set<std::size_t> streams;
    if (!done.insert(start).second) continue;
    for (std::size_t k = 0; k < keys.size(); ++k)
      for (std::size_t s : streams_of.at(keys[k]))
        if (streams.insert(s).second)
          for (const FrameKey& other : keys_of[s])
            if (done.insert(other).second) keys.push_back(other);
    const bool in_turn = std::any_of(streams.begin(), streams.end(), [&](std::size_t s) { return plan.streams[s].slots > 1; });
    if (keys.size() > 1 && in_turn) SlotPacker(plan, parts, keys, {streams.begin(), streams.end()}).run();
  }
}

}  // namespace belfry
