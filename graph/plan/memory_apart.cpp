#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/memory_place_internal.h>
#include <belfry/graph/plan/memory_uses_internal.h>

namespace belfry {

namespace {

/// Orders that come of changing the best one, at the most: what ends last comes earlier.
constexpr int kMostChanged = 64;
/// Pairs of pieces and what lies beside them; to find out whether two meet takes so many looks at what was found.
constexpr std::size_t kMostBeside = kMostPairs / 2, kMeets = 8;
/// Places that are written down, at the most.
constexpr std::size_t kMostPlaces = 1000;

class ApartPlacer {
 public:
  ApartPlacer(PlacedGraph& plan, MemoryParts& parts, std::size_t group, const Rows& rows) : plan_(plan), region_(parts.regions[group]), rows_(rows), turns_(plan, parts, group), end_(plan.groups[group].region) {
    if (turns_.empty()) return;
    beside_ = frame_bytes(plan, parts, group, rows);
    own_ = own_items(region_);
  }

  /// Gives the end of the region; takes off what it has looked at.
  std::int64_t run(std::size_t& left) {
    const bool behind = std::any_of(beside_.begin(), beside_.end(), [&](const FrameBytes& f) { return f.past >= end_; });
    if (turns_.empty() || behind || !divide(left)) return end_;
    set_meets();
    const std::size_t pairs = meets_.size() + 1;
    left -= std::min(left, kMeets * pairs);
    std::size_t tries = left / pairs;
    const std::size_t most = tries;
    for (int key = 0; key < 3 && tries > 0; ++key, --tries) fit(sorted(key));
    std::vector<std::size_t> order = best_order_;
    for (int k = best_.empty() ? 0 : kMostChanged; k-- > 0 && tries > 0; --tries) {
      const std::size_t last = fit(order);
      if (last == 0) break;
      const auto at = order.begin() + static_cast<std::ptrdiff_t>(last);
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(last / 2), at, at + 1);
    }
    left -= (most - tries) * pairs;
    if (!best_.empty()) keep();
    return end_;
  }

 private:
  /// An item, or one buffer of it: then when it is in use says which bytes of frames, and which others, it may lie over.
  struct Piece {
    std::size_t row = 0;
    std::int64_t size = 0;
    int part = -1;
  };

  /// Into buffers, those that take most before others, as many as can be looked at; says whether there is something to place.
  bool divide(std::size_t left) {
    std::vector<std::size_t> order;
    for (std::size_t row = 0; row < own_.size(); ++row) {
      const RegionItem& x = item(row);
      if (plan_.nodes[x.node].scope == Scope::tower && !x.scratch && x.size > 0) order.push_back(row);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return item(a).size > item(b).size; });
    std::size_t count = own_.size(), places = 0;
    std::vector<bool> divided(own_.size());
    for (std::size_t row : order) {
      const std::size_t more = static_cast<std::size_t>(item(row).size / item(row).each) - 1;
      if ((count + more) * (beside_.size() + count + more) > std::min(kMostBeside, left / (2 * kMeets)) || places + more > kMostPlaces) continue;
      count += more, places += more, divided[row] = true;
    }
    for (std::size_t row = 0; row < own_.size(); ++row) {
      if (!divided[row]) {
        pieces_.push_back({row, item(row).size, -1});
        continue;
      }
      for (TowerPart& part : turns_.parts(own_[row])) {
        pieces_.push_back({row, part.size, static_cast<int>(parts_.size())});
        parts_.push_back(std::move(part));
      }
    }
    return !pieces_.empty() && pieces_.size() * (beside_.size() + pieces_.size()) <= std::min(kMostBeside, left / (2 * kMeets));
  }

  const RegionItem& item(std::size_t row) const { return region_.items[own_[row]]; }
  const TowerPart& part(const Piece& p) const { return parts_[static_cast<std::size_t>(p.part)]; }

  static bool at_once(const std::vector<Uses>& x, const std::vector<Uses>& y) {
    for (std::size_t d = 0; d < x.size(); ++d)
      if (belfry::at_once(x[d], y[d])) return true;
    return false;
  }

  /// Whether the streams of towers have passed all of it: of many towers those before the last are further than it is.
  static bool is_over(const std::vector<Uses>& uses, const std::vector<std::int64_t>& passed) {
    for (std::size_t d = 0; d < uses.size(); ++d)
      if (!uses[d].empty() && uses[d].back().second >= passed[d]) return false;
    return true;
  }

  void set_meets() {
    width_ = beside_.size() + pieces_.size();
    meets_.resize(pieces_.size() * width_);
    std::vector<const std::vector<Uses>*> uses;
    for (const FrameBytes& f : beside_) uses.push_back(f.covered ? nullptr : &turns_.uses(f.k, *f.block, f.rank));
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& p = pieces_[i];
      const std::vector<std::int64_t> passed = p.part < 0 ? turns_.passed(item(p.row)) : std::vector<std::int64_t>();
      for (std::size_t f = 0; f < beside_.size(); ++f)
        meets_[i * width_ + f] = p.part >= 0 && uses[f] ? at_once(part(p).uses, *uses[f]) : rows_.meet(p.row, beside_[f].row) && !(uses[f] && is_over(*uses[f], passed));
      for (std::size_t j = 0; j < i; ++j) {
        const Piece& q = pieces_[j];
        const bool meet = p.part < 0 || q.part < 0 ? rows_.meet(p.row, q.row) : at_once(part(p).uses, part(q).uses);
        meets_[i * width_ + beside_.size() + j] = meets_[j * width_ + beside_.size() + i] = meet;
      }
    }
  }

  /// By size; what towers make by when they begin with it first, or what they begin with last.
  std::vector<std::size_t> sorted(int key) const {
    std::vector<std::tuple<bool, std::int64_t, std::int64_t>> keys;
    for (const Piece& p : pieces_) {
      const std::int64_t begin = p.part < 0 || part(p).uses[0].empty() ? 0 : part(p).uses[0][0].first;
      if (key == 0) keys.emplace_back(false, -p.size, begin);
      else keys.emplace_back(p.part < 0, key == 1 ? begin : -begin, -p.size);
    }
    std::vector<std::size_t> out(pieces_.size());
    std::iota(out.begin(), out.end(), std::size_t{0});
    std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
    return out;
  }

  /// Gives the place in the order of what ends last.
  std::size_t fit(const std::vector<std::size_t>& order) {
    std::vector<TakenBytes> taken;
    taken.reserve(width_);
    for (std::size_t f = 0; f < beside_.size(); ++f) taken.push_back({beside_[f].from, beside_[f].past, f});
    std::sort(taken.begin(), taken.end());
    std::vector<std::int64_t> offsets(pieces_.size());
    std::int64_t end = 0;
    std::size_t last = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t i = order[k];
      offsets[i] = first_gap(taken, pieces_[i].size, [&](std::size_t other) { return meets_[i * width_ + other] != 0; });
      take(taken, {offsets[i], offsets[i] + pieces_[i].size, beside_.size() + i});
      if (offsets[i] + pieces_[i].size > end) end = offsets[i] + pieces_[i].size, last = k;
    }
    if (best_order_.empty() || end < least_) least_ = end, best_order_ = order;
    if (end < end_) end_ = end, best_ = std::move(offsets);
    return last;
  }

  void keep() {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      RegionItem& x = region_.items[own_[pieces_[i].row]];
      if (pieces_[i].part < 0) x.offset = best_[i];
      else x.places.push_back(best_[i]);
    }
  }

  PlacedGraph& plan_;
  Region& region_;
  const Rows& rows_;
  TowersInTurn turns_;
  std::int64_t end_ = 0;
  std::vector<FrameBytes> beside_;
  std::vector<std::size_t> own_;
  std::vector<Piece> pieces_;
  std::vector<TowerPart> parts_;
  std::size_t width_ = 0;
  std::vector<char> meets_;                ///< per piece: frames' bytes, then pieces
  std::int64_t least_ = 0;
  std::vector<std::size_t> best_order_;
  std::vector<std::int64_t> best_;
};

}  // namespace

std::size_t place_apart(PlacedGraph& plan, MemoryParts& parts, std::size_t group, const Rows& rows, std::size_t pairs) {
  plan.groups[group].region = ApartPlacer(plan, parts, group, rows).run(pairs);
  return pairs;
}

}  // namespace belfry
