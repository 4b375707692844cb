#include <belfry/placer/cut/search_internal.h>

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <tuple>

#include <belfry/placer/cut/parts_internal.h>

namespace belfry::cutting {

namespace {

/// An item's forward or backward part.
struct Pass {
  int item = 0;
  bool back = false;
  auto operator<=>(const Pass&) const = default;
};

struct PassValue {
  double seconds = 0;
  Pass owner;
  std::vector<Pass> readers;                  ///< of other items
};

/// A prefix on devices of its own, and when what crosses its cut is there.
struct State {
  Words prefix;
  std::vector<int> used;                      ///< devices per kind
  std::vector<double> time;                   ///< per value that crosses: of one made in the prefix its end; else the seconds from its end to the last one in the prefix
  double done = 0;                            ///< the longest way inside the prefix
  double bound = 0;
  int from = -1, kind = -1, items = 0;
};

class LatencySearch {
 public:
  LatencySearch(const CutProblem& p, const Items& items, std::int64_t& steps) : items_(items), kinds_(p.kinds), bounds_(items, p.kinds), parts_(items, p.kinds, bounds_), steps_(steps) {
    bounds_.set_cap(kInfinity);
    seconds_.assign(2, std::vector<std::vector<double>>(p.kinds.size(), std::vector<double>(at(items.count))));
    least_.assign(2, std::vector<double>(at(items.count), kInfinity));
    std::vector<int> item(p.nodes.size());
    for (int i = 0; i < items.count; ++i)
      for (int n : items.nodes[at(i)]) item[at(n)] = i;
    for (std::size_t n = 0; n < p.nodes.size(); ++n)
      for (std::size_t k = 0; k < p.kinds.size(); ++k) seconds_[p.nodes[n].backward][k][at(item[n])] += p.nodes[n].seconds[k];
    for (std::size_t pass = 0; pass < 2; ++pass)
      for (std::size_t k = 0; k < p.kinds.size(); ++k)
        for (int i = 0; p.kinds[k].count && i < items.count; ++i) least_[pass][at(i)] = std::min(least_[pass][at(i)], seconds_[pass][k][at(i)]);
    std::vector<std::vector<Pass>> readers(p.nodes.size());
    for (auto [a, b] : p.edges)
      if (item[at(a)] != item[at(b)]) readers[at(a)].push_back({item[at(b)], p.nodes[at(b)].backward});
    std::map<std::pair<Pass, std::vector<Pass>>, double> known;
    for (std::size_t n = 0; n < p.nodes.size(); ++n) {
      std::sort(readers[n].begin(), readers[n].end());
      readers[n].erase(std::unique(readers[n].begin(), readers[n].end()), readers[n].end());
      if (!readers[n].empty()) known[{{item[n], p.nodes[n].backward}, readers[n]}] += p.nodes[n].transfer;
    }
    made_.resize(2 * at(items.count));
    for (const auto& [key, s] : known) {
      made_[number(key.first)].push_back(static_cast<int>(values_.size()));
      values_.push_back({s, key.first, key.second});
      for (Pass r : key.second) against_ |= key.first.back && r.back && r.item < key.first.item;
    }
    cost_ = 1 + (items.count + static_cast<int>(values_.size())) / 8;
  }

  Answer run(const std::optional<Split>& known) {
    best_ = known ? known->value : kInfinity;
    Answer out{known, 0};
    states_.push_back({Words(parts_.words()), std::vector<int>(kinds_.size()), {}, 0, 0, -1, -1, 0});
    states_[0].bound = bound_of(states_[0]);
    queue_.push(0);
    while (!queue_.empty()) {
      const int i = queue_.top();
      if (states_[at(i)].bound >= best_ * kLess) break;
      queue_.pop();
      if (!expand(i)) {
        out.bound = states_[at(i)].bound;
        out.finished = false;
        if (last_ >= 0) out.best = split();
        return out;
      }
    }
    if (last_ >= 0) out.best = split();
    out.bound = best_;
    return out;
  }

 private:
  struct Later {
    const std::vector<State>* states;
    bool operator()(int a, int b) const {
      const State &x = (*states)[at(a)], &y = (*states)[at(b)];
      return std::tuple(x.bound, -x.items, a) > std::tuple(y.bound, -y.items, b);
    }
  };
  static std::size_t number(Pass p) { return 2 * at(p.item) + p.back; }
  static bool has(const Words& set, int item) { return set[at(item) / 64] >> (item % 64) & 1; }

  /// False where steps ran out: then the state still stands for what can follow it.
  bool expand(int i) {
    const State state = states_[at(i)];
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      if (state.used[k] == kinds_[k].count) continue;
      bool left = true;
      auto visit = [&](const Part& p) {
        left = left && (steps_ -= cost_) > 0;
        if (left) follow(i, state, k, *p.prefix);
      };
      if (!parts_.walk(state.prefix, shortest(state.prefix, {0, static_cast<std::uint32_t>(parts_.words())}), k, {best_ * kLess, 0}, steps_, visit) || !left) return false;
    }
    return true;
  }

  void follow(int from, const State& state, std::size_t kind, const Words& prefix) {
    State next{prefix, state.used, {}, state.done, 0, from, static_cast<int>(kind), 0};
    ++next.used[kind];
    if (!room(next)) return;
    for (int i = 0; i < items_.count; ++i) next.items += has(prefix, i);
    set_times(state, kind, next);
    next.bound = bound_of(next);
    if (next.bound >= best_ * kLess) return;
    std::vector<int>& same = known_[{next.used, prefix}];
    auto covers = [](const State& a, const State& b) { return a.done <= b.done && std::equal(a.time.begin(), a.time.end(), b.time.begin(), [](double x, double y) { return x <= y; }); };
    for (int other : same)
      if (covers(states_[at(other)], next)) return;
    const int mine = static_cast<int>(states_.size());
    same.push_back(mine);
    if (next.items == items_.count) best_ = next.done, last_ = mine;
    states_.push_back(std::move(next));
    if (states_.back().items != items_.count) queue_.push(mine);
  }

  /// Whether the devices that are left have memory for what is left.
  bool room(const State& s) const {
    double memory = 0, bytes = 0, all = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (kinds_[k].count > s.used[k]) memory += kinds_[k].memory * (kinds_[k].count - s.used[k]);
    for (int i = 0; i < items_.count; ++i) {
      all += items_.bytes[at(i)];
      if (!has(s.prefix, i)) bytes += items_.bytes[at(i)];
    }
    return bytes <= memory + 1e-9 * all;
  }

  /// When the new part runs, and what crosses the cut behind it.
  void set_times(const State& state, std::size_t kind, State& next) {
    enum Zone { kBefore, kHere, kBehind };
    auto zone = [&](int item) { return has(state.prefix, item) ? kBefore : has(next.prefix, item) ? kHere : kBehind; };
    const bool pays = kinds_[kind].pays;
    std::array<double, 2> load{}, start{}, tail{};
    for (int i = 0; i < items_.count; ++i)
      if (zone(i) == kHere)
        for (std::size_t pass = 0; pass < 2; ++pass) load[pass] += seconds_[pass][kind][at(i)];
    std::vector<double> time(values_.size(), -1);  // those that cross the cut before the part
    std::size_t crossing = 0;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const PassValue& value = values_[v];
      const Zone owner = zone(value.owner.item);
      bool before = owner == kBefore, behind = owner != kBefore, elsewhere = false;
      std::array<bool, 2> read{};
      for (Pass r : value.readers) {
        const Zone z = zone(r.item);
        (z == kBefore ? before : behind) = true;
        if (z == kHere) read[r.back] = true;
        else elsewhere = true;
      }
      if (before && behind) time[v] = state.time[crossing++];
      if (owner == kHere) {
        if (elsewhere && pays) load[value.owner.back] += value.seconds;
        if (time[v] >= 0) tail[value.owner.back] = std::max(tail[value.owner.back], time[v]);
      } else if (read[0] || read[1]) {
        if (pays) load[read[0] ? 0 : 1] += value.seconds;
        for (std::size_t pass = 0; owner == kBefore && pass < 2; ++pass)
          if (read[pass]) start[pass] = std::max(start[pass], time[v]);
      }
    }
    start[1] = std::max(start[1], start[0] + load[0]);
    tail[1] += load[1];
    tail[0] = load[0] + std::max(tail[0], tail[1]);
    next.done = std::max({next.done, start[0] + tail[0], start[1] + tail[1]});
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const PassValue& value = values_[v];
      const Zone owner = zone(value.owner.item);
      bool before = owner != kBehind, behind = owner == kBehind;
      double t = owner == kHere ? start[value.owner.back] + load[value.owner.back] : std::max(time[v], 0.0);
      for (Pass r : value.readers) {
        const Zone z = zone(r.item);
        (z == kBehind ? behind : before) = true;
        if (owner == kBehind && z == kHere) t = std::max(t, tail[r.back]);
      }
      if (before && behind) next.time.push_back(t);
    }
  }

  /// The longest way through what is left, each item by itself on the device where it is quickest.
  double bound_of(const State& s) {
    bool pay = true;
    for (std::size_t k = 0; k < kinds_.size(); ++k) pay &= kinds_[k].pays || s.used[k] == kinds_[k].count;
    std::vector<double> ready(2 * at(items_.count));
    std::vector<double> behind(values_.size(), -1);  // of values that go back into the prefix
    double out = s.done;
    std::size_t crossing = 0;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const PassValue& value = values_[v];
      const bool owned = has(s.prefix, value.owner.item);
      if (std::all_of(value.readers.begin(), value.readers.end(), [&](Pass r) { return has(s.prefix, r.item) == owned; })) continue;
      const double t = s.time[crossing++];
      if (!owned) behind[v] = t + (pay ? value.seconds : 0);
      else
        for (Pass r : value.readers)
          if (!has(s.prefix, r.item)) ready[number(r)] = std::max(ready[number(r)], t + (pay ? value.seconds : 0));
    }
    auto pass = [&](int item, bool back) {
      if (has(s.prefix, item)) return;
      if (back) ready[number({item, true})] = std::max(ready[number({item, true})], ready[number({item, false})] + least_[0][at(item)]);
      const double end = ready[number({item, back})] + least_[back][at(item)];
      out = std::max(out, end);
      for (int v : made_[number({item, back})]) {
        if (behind[at(v)] >= 0) out = std::max(out, end + behind[at(v)]);
        for (Pass r : values_[at(v)].readers) ready[number(r)] = std::max(ready[number(r)], end);
      }
    };
    for (int i = 0; i < items_.count; ++i) pass(i, false);
    for (int i = 0; i < items_.count; ++i) pass(against_ ? items_.count - 1 - i : i, true);
    return out;
  }

  Split split() const {
    Split out{best_, std::vector<int>(at(items_.count), -1), std::vector<int>(at(items_.count), -1)};
    int parts = 0;
    for (int i = last_; states_[at(i)].from >= 0; i = states_[at(i)].from) ++parts;
    for (int i = last_; states_[at(i)].from >= 0; i = states_[at(i)].from) {
      const State& s = states_[at(i)];
      int device = s.used[at(s.kind)] - 1;
      for (int k = 0; k < s.kind; ++k) device += kinds_[at(k)].count;
      --parts;
      for (int item = 0; item < items_.count; ++item)
        if (has(s.prefix, item) && !has(states_[at(s.from)].prefix, item)) out.device[at(item)] = device, out.part[at(item)] = parts;
    }
    return out;
  }

  const Items& items_;
  const std::vector<CutKind>& kinds_;
  Bounds bounds_;
  Parts parts_;
  std::int64_t& steps_;
  std::int64_t cost_ = 1;                     // steps that looking at a state counts as
  std::vector<std::vector<std::vector<double>>> seconds_;  // per pass, kind and item
  std::vector<std::vector<double>> least_;    // per pass and item, on the best kind
  std::vector<PassValue> values_;
  std::vector<std::vector<int>> made_;        // per pass of an item
  bool against_ = false;                      // gradients run from later items to earlier ones
  std::vector<State> states_;
  std::priority_queue<int, std::vector<int>, Later> queue_{Later{&states_}};
  std::map<std::pair<std::vector<int>, Words>, std::vector<int>> known_;
  double best_ = kInfinity;
  int last_ = -1;
};

}  // namespace

Answer least_latency(const CutProblem& problem, const Items& items, const std::optional<Split>& known, std::int64_t& steps) { return LatencySearch(problem, items, steps).run(known); }

}  // namespace belfry::cutting
