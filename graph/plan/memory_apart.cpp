#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory_first_fit_internal.h>
#include <belfry/graph/plan/memory_place_internal.h>
#include <belfry/graph/plan/memory_uses_internal.h>

namespace belfry {

namespace {

/// Orders that come of changing the best one, at the most, and of them without gain: what ends last comes earlier.
constexpr int kMostChanged = 64, kMostVain = 12;
/// Pairs of pieces and what lies beside them; to find out whether two meet takes so many looks at what was found, and one for each time that one is in use.
constexpr std::size_t kMostBeside = kMostPairs, kMeets = 4;
/// Places of what is made for joins that are written down, at the most.
constexpr std::size_t kMostPlaces = 1000;
/// Buffers of frames have places of their own where at least a 32nd is won, and can be.
constexpr std::int64_t kLeastWon = 32;
/// What is not looked at takes a 128th at the most.
constexpr std::int64_t kSmall = 128;
constexpr int kKeys = 4;

class ApartPlacer {
 public:
  ApartPlacer(PlacedGraph& plan, MemoryParts& parts, std::size_t group, const Rows& rows)
      : plan_(plan), parts_(parts), region_(parts.regions[group]), rows_(rows), turns_(plan, parts, group), end_(plan.groups[group].region) {}

  /// Gives the end of the region; takes off what it has looked at.
  std::int64_t run(bool frames_are_its_own, std::size_t& left) {
    if (turns_.empty()) return end_;
    own_ = own_items(region_);
    frames_ = frame_bytes(plan_, parts_, static_cast<std::size_t>(&region_ - parts_.regions.data()), rows_);
    for (const FrameBytes& f : frames_) past_ = std::max(past_, f.past);
    std::vector<Piece> beside;
    std::size_t times = 0;
    for (const FrameBytes& f : frames_) {
      beside.push_back({f.row, f.past - f.from, kNone, kNone, &turns_.uses(f.k, *f.block, f.rank), f.covered, f.from});
      times += beside.back().uses->front().size();
    }
    meets_ = kMeets + times / std::max<std::size_t>(1, beside.size());
    std::size_t around = frames_are_its_own ? left / 2 : left;  // the rest is for frames
    left -= around;
    std::vector<Piece> pieces = divided(around);
    enough_ = least_bytes(pieces, beside);
    enough_ += enough_ / 200;
    if (past_ < end_ && enough_ < end_ && !pieces.empty() && is_within(pieces.size(), beside.size(), around))
      if (const std::vector<std::int64_t> places = search(pieces, beside, end_, around); !places.empty()) keep(pieces, places);
    left += around;
    const std::int64_t now = std::max(end_, past_);
    if (!frames_are_its_own || beside.empty() || now - enough_ < now / kLeastWon) return end_;
    for (std::size_t f = 0; f < beside.size(); ++f) beside[f].frame = f;
    pieces.insert(pieces.end(), beside.begin(), beside.end());
    if (const std::vector<std::int64_t> places = of_all(pieces, now, left); !places.empty()) {
      keep(pieces, places);
      keep_frames(pieces, places);
    }
    return end_;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  /// An item, one buffer of it, or a block of a frame in one slot. `uses`: says which others that say it too it may lie over.
  struct Piece {
    std::size_t row = 0;
    std::int64_t size = 0;
    std::size_t item = kNone, frame = kNone;
    const std::vector<Uses>* uses = nullptr;
    bool covered = false;     ///< a join writes over it: so far as others than frames go, when that is in use counts
    std::int64_t from = 0;    ///< of what stays where it is
  };

  /// Places of items and frames as one; none where not enough is won. So many of the smallest that the rest can be looked at lie behind
  /// it, side by side, if they take next to nothing.
  std::vector<std::int64_t> of_all(const std::vector<Piece>& pieces, std::int64_t now, std::size_t& left) const {
    std::vector<std::size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return pieces[a].size > pieces[b].size; });
    std::size_t count = order.size();
    std::int64_t small = 0;
    while (count > 0 && !is_within(count, 0, left) && small + pieces[order[count - 1]].size < now / kSmall) small += pieces[order[--count]].size;
    std::vector<Piece> large;
    for (std::size_t k = 0; k < count; ++k) large.push_back(pieces[order[k]]);
    if (!is_within(count, 0, left)) return {};
    const std::vector<std::int64_t> places = search(large, {}, now - now / kLeastWon - small, left);
    if (places.empty()) return {};
    std::vector<std::int64_t> out(pieces.size(), -1);
    std::int64_t end = 0;
    for (std::size_t k = 0; k < count; ++k) out[order[k]] = places[k], end = std::max(end, places[k] + large[k].size);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (out[i] < 0) out[i] = end, end += pieces[i].size;
    return out;
  }

  bool is_within(std::size_t pieces, std::size_t beside, std::size_t left) const { return pieces * (pieces + beside) <= std::min(kMostBeside, left / (2 * meets_)); }

  /// Items, those of towers into buffers, those that take most before others, as many as can be looked at.
  std::vector<Piece> divided(std::size_t left) {
    std::vector<std::size_t> order;
    for (std::size_t row = 0; row < own_.size(); ++row) {
      const RegionItem& x = item(row);
      if (plan_.nodes[x.node].scope == Scope::tower && !x.scratch && x.size > 0) order.push_back(row);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return item(a).size > item(b).size; });
    std::size_t count = own_.size(), places = 0;
    std::vector<bool> apart(own_.size());
    for (std::size_t row : order) {
      const std::size_t more = static_cast<std::size_t>(item(row).size / item(row).each) - 1;
      if (places + more > kMostPlaces || !is_within(count + more, frames_.size(), left)) continue;
      count += more, places += more, apart[row] = true;
    }
    std::vector<Piece> out;
    parts_of_.resize(own_.size());
    for (std::size_t row = 0; row < own_.size(); ++row) {
      if (apart[row]) parts_of_[row] = turns_.parts(own_[row]);
      else out.push_back({row, item(row).size, row});
      for (const TowerPart& part : parts_of_[row]) out.push_back({row, part.size, row, kNone, &part.uses});
    }
    return out;
  }

  const RegionItem& item(std::size_t row) const { return region_.items[own_[row]]; }

  static bool at_once(const std::vector<Uses>& x, const std::vector<Uses>& y) {
    for (std::size_t d = 0; d < x.size(); ++d)
      if (belfry::at_once(x[d], y[d])) return true;
    return false;
  }

  /// `outside`: when the first is in use, where it is an item. Of many towers those before the last are further than rows say.
  bool meet(const Piece& x, const Piece& y, const std::vector<Uses>& outside) const {
    const bool both_in_frames = x.item == kNone && y.item == kNone, covered = !both_in_frames && (x.covered || y.covered);
    if (x.uses && y.uses && !covered) return at_once(*x.uses, *y.uses);
    return rows_.meet(x.row, y.row) && (x.uses || !y.uses || covered || at_once(outside, *y.uses));
  }

  FirstFit meeting(const std::vector<Piece>& pieces, const std::vector<Piece>& beside) const {
    std::vector<std::int64_t> sizes;
    std::vector<std::pair<std::int64_t, std::int64_t>> fixed;
    for (const Piece& p : pieces) sizes.push_back(p.size);
    for (const Piece& p : beside) fixed.emplace_back(p.from, p.from + p.size);
    FirstFit out(std::move(sizes), std::move(fixed));
    std::vector<std::vector<Uses>> outside;
    for (const Piece& p : pieces) outside.push_back(p.uses ? std::vector<Uses>() : turns_.outside(item(p.item)));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) out.set_meet(i, j, pieces[i].uses && !pieces[j].uses ? meet(pieces[j], pieces[i], outside[j]) : meet(pieces[i], pieces[j], outside[i]));
      for (std::size_t f = 0; f < beside.size(); ++f) out.set_meet(i, pieces.size() + f, meet(pieces[i], beside[f], outside[i]));
    }
    return out;
  }

  /// By size; what says when it is in use by when it begins first, or what begins last, or by bytes times time.
  static std::vector<std::size_t> sorted(const std::vector<Piece>& pieces, int key) {
    std::vector<std::tuple<bool, double, std::int64_t>> keys;
    for (const Piece& p : pieces) {
      const bool known = p.uses && !p.uses->front().empty();
      const double begin = known ? static_cast<double>(p.uses->front().front().first) : 0;
      if (key == 0) keys.emplace_back(false, -static_cast<double>(p.size), 0);
      else if (key == 3) keys.emplace_back(!p.uses, -static_cast<double>(p.size) * length(p), -p.size);
      else keys.emplace_back(!p.uses, key == 1 ? begin : -begin, -p.size);
    }
    std::vector<std::size_t> out(pieces.size());
    std::iota(out.begin(), out.end(), std::size_t{0});
    std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
    return out;
  }

  static double length(const Piece& p) {
    double out = 0;
    if (p.uses)
      for (const auto& [first, last] : p.uses->front()) out += static_cast<double>(last) - static_cast<double>(first) + 1;
    return out;
  }

  /// Places that all end below `limit`; none where none were found.
  std::vector<std::int64_t> search(const std::vector<Piece>& pieces, const std::vector<Piece>& beside, std::int64_t limit, std::size_t& left) const {
    FirstFit fit = meeting(pieces, beside);
    left -= std::min(left, meets_ * fit.looks());
    std::size_t tries = left / fit.looks();
    const std::size_t most = tries;
    std::vector<std::int64_t> best, offsets(pieces.size());
    std::vector<std::size_t> best_order;
    std::int64_t lowest = 0;
    auto look = [&](const std::vector<std::size_t>& order) {
      --tries;
      fit.fit(order, kHigh, offsets);
      const std::size_t last = fit.last_of(order, offsets);
      const std::int64_t end = offsets[order[last]] + pieces[order[last]].size;
      if (best_order.empty() || end < lowest) lowest = end, best_order = order;
      if (end < limit) limit = end, best = offsets;
      return last;
    };
    for (int key = 0; key < kKeys && tries > 0 && limit > enough_; ++key) look(sorted(pieces, key));
    std::vector<std::size_t> order = best_order;
    for (int k = best_order.empty() ? 0 : kMostChanged, vain = 0; k-- > 0 && vain < kMostVain && tries > 0 && limit > enough_; ++vain) {
      const std::int64_t before = lowest;
      const std::size_t last = look(order);
      if (last == 0) break;
      if (lowest < before) vain = 0;
      come_earlier(order, last);
    }
    left -= (most - tries) * fit.looks();
    return best;
  }

  /// Bytes of what says when it is in use, the most at once on a device: no places end lower.
  std::int64_t least_bytes(const std::vector<Piece>& pieces, const std::vector<Piece>& beside) const {
    std::int64_t out = 0;
    for (std::size_t d = 0; d < turns_.devices(); ++d) {
      std::map<std::int64_t, std::int64_t> change;
      for (const std::vector<Piece>* list : {&pieces, &beside})
        for (const Piece& p : *list) {
          if (!p.uses) continue;
          for (const auto& [first, last] : (*p.uses)[d]) {
            change[first] += p.size;
            if (last < TowersInTurn::kNoEnd) change[last + 1] -= p.size;
          }
        }
      std::int64_t now = 0;
      for (auto [at, by] : change) out = std::max(out, now += by);
    }
    return out;
  }

  void keep(const std::vector<Piece>& pieces, const std::vector<std::int64_t>& places) {
    end_ = 0;
    for (std::size_t row = 0; row < own_.size(); ++row) region_.items[own_[row]].places.clear();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].item == kNone) continue;
      RegionItem& x = region_.items[own_[pieces[i].item]];
      if (!pieces[i].uses) x.offset = places[i];
      else x.places.push_back(places[i]);
      end_ = std::max(end_, places[i] + pieces[i].size);
    }
  }

  /// Slots then begin at one place, and a block has one in each.
  void keep_frames(const std::vector<Piece>& pieces, const std::vector<std::int64_t>& places) {
    const std::vector<FrameKey>& keys = parts_.frames_on[static_cast<std::size_t>(region_.device)];
    const DeviceFrames frames = device_frames(plan_, region_.device);
    const std::size_t slots = frames.kept.size();
    std::map<std::pair<std::size_t, std::ptrdiff_t>, std::vector<std::int64_t>> of_block;
    for (const FrameKey& key : keys) plan_.classes[static_cast<std::size_t>(key.first)].frame[static_cast<std::size_t>(key.second)] = {};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].frame == kNone) continue;
      const FrameBytes& f = frames_[pieces[i].frame];
      std::vector<FrameBlock>& layout = parts_.layouts.at(keys[f.k]);
      FrameBlock& block = layout[static_cast<std::size_t>(f.block - layout.data())];
      FrameSize& size = plan_.classes[static_cast<std::size_t>(keys[f.k].first)].frame[static_cast<std::size_t>(keys[f.k].second)];
      std::int64_t& end = f.rank < 0 ? size.transient : slots > 1 ? size.tail : size.kept;
      end = std::max(end, places[i] + pieces[i].size);
      if (f.rank < 0) {
        block.slot = {Slot::kTransient, places[i], 0};
        continue;
      }
      std::vector<std::int64_t>& own = of_block[{f.k, &block - layout.data()}];  // of slots that its class does not use, any
      own.resize(static_cast<std::size_t>(f.rank), places[i]);
      own.push_back(places[i]);
    }
    for (auto& [at, own] : of_block) {
      own.resize(slots, own.back());
      parts_.layouts.at(keys[at.first])[static_cast<std::size_t>(at.second)].slot = Slot::of(Slot::kKept, own);
    }
    set_frames(plan_, parts_);
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
  Region& region_;
  const Rows& rows_;
  TowersInTurn turns_;
  std::int64_t end_ = 0, past_ = 0;                 ///< behind the region, behind the frames
  std::size_t meets_ = kMeets;                      ///< looks to find out whether two meet
  std::int64_t enough_ = 0;                         ///< hardly more than what is in use at once
  std::vector<FrameBytes> frames_;
  std::vector<std::size_t> own_;
  std::vector<std::vector<TowerPart>> parts_of_;    ///< per item
};

}  // namespace

std::size_t place_apart(PlacedGraph& plan, MemoryParts& parts, std::size_t group, const Rows& rows, bool frames_are_its_own, std::size_t pairs) {
  plan.groups[group].region = ApartPlacer(plan, parts, group, rows).run(frames_are_its_own, pairs);
  return pairs;
}

}  // namespace belfry
