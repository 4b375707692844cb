#include <belfry/graph/plan/lanes.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace belfry {

namespace {

/// Who touched which bytes last: ranges that do not overlap, each with its last writer and those that read it since.
class Touches {
 public:
  void read(int step, const BufferRef& b, std::set<int>& before) {
    each(b, [&](Touch& t) {
      if (t.writer >= 0) before.insert(t.writer);
      t.readers.push_back(step);
    });
  }
  void write(int step, const BufferRef& b, std::set<int>& before) {
    each(b, [&](Touch& t) {
      if (t.writer >= 0) before.insert(t.writer);
      before.insert(t.readers.begin(), t.readers.end());
      t = {step, {}};
    });
  }

 private:
  struct Touch {
    int writer = -1;
    std::vector<int> readers = {};
  };
  using Key = std::pair<int, std::int64_t>;  // space, first byte

  /// Calls f for the ranges that make up the buffer, cut where they reach beyond it.
  template <class F>
  void each(const BufferRef& b, F f) {
    if (b.bytes <= 0) return;
    cut({b.space, b.at});
    cut({b.space, b.at + b.bytes});
    const Key end{b.space, b.at + b.bytes};
    for (auto at = ranges_.lower_bound({b.space, b.at}); at != ranges_.end() && at->first < end; ++at) f(at->second);
  }
  /// Makes a range begin there: what is before the first one of a space, or behind the last, is untouched.
  void cut(const Key& key) {
    auto at = ranges_.upper_bound(key);
    Touch inside;
    if (at != ranges_.begin() && std::prev(at)->first.first == key.first) {
      if (std::prev(at)->first == key) return;
      inside = std::prev(at)->second;
    }
    ranges_.emplace(key, std::move(inside));
  }

  std::map<Key, Touch> ranges_;
};

/// A maximum matching of the pairs (earlier, later): `next[i]` follows i on its lane, or is -1. Kuhn's algorithm.
class Matching {
 public:
  explicit Matching(const Precedence& before) : before_(before), next_(before.size(), -1), previous_(before.size(), -1), seen_(before.size(), -1) {
    for (int j = 0; j < static_cast<int>(before.size()); ++j) extend(j, j);
  }
  const std::vector<int>& previous() const { return previous_; }

 private:
  bool extend(int j, int round) {
    for (int i : before_[static_cast<std::size_t>(j)]) {
      auto at = static_cast<std::size_t>(i);
      if (seen_[at] == round) continue;
      seen_[at] = round;
      if (next_[at] < 0 || extend(next_[at], round)) {
        next_[at] = j;
        previous_[static_cast<std::size_t>(j)] = i;
        return true;
      }
    }
    return false;
  }

  const Precedence& before_;
  std::vector<int> next_, previous_, seen_;
};

}  // namespace

Precedence precedence(std::span<const Step* const> steps) {
  Touches bytes;
  Precedence all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::set<int> before;
    const int me = static_cast<int>(i);
    for (const auto& parts : steps[i]->reads)
      for (const Part& p : parts)
        if (p.buffer.space >= 0) bytes.read(me, p.buffer, before);
    for (const auto& parts : steps[i]->writes)
      for (const Part& p : parts)
        if (p.buffer.space >= 0) bytes.write(me, p.buffer, before);
    if (steps[i]->scratch.space >= 0) bytes.write(me, steps[i]->scratch, before);
    before.erase(me);
    all.emplace_back(before.begin(), before.end());
  }
  return all;
}

Precedence reduced(const Precedence& all) {
  const std::size_t words = (all.size() + 63) / 64;
  std::vector<std::vector<std::uint64_t>> reach(all.size(), std::vector<std::uint64_t>(words));  // per step all that it follows
  Precedence out(all.size());
  for (std::size_t j = 0; j < all.size(); ++j) {
    // The latest first: what it follows need not be named again.
    std::vector<int> earlier = all[j];
    std::sort(earlier.rbegin(), earlier.rend());
    for (int i : earlier) {
      auto at = static_cast<std::size_t>(i);
      if (reach[j][at / 64] >> (at % 64) & 1) continue;
      out[j].push_back(i);
      for (std::size_t w = 0; w < words; ++w) reach[j][w] |= reach[at][w];
      reach[j][at / 64] |= std::uint64_t{1} << (at % 64);
    }
    std::sort(out[j].begin(), out[j].end());
  }
  return out;
}

std::vector<int> joined(const Precedence& all, std::span<const Joining> steps) {
  std::vector<int> out(all.size()), waits(all.size(), -1);  // the kind of a step that waits
  std::map<int, std::vector<int>> waiting;
  auto launch = [&](int kind) {
    for (int i : waiting[kind]) {
      out[static_cast<std::size_t>(i)] = waiting[kind].back();
      waits[static_cast<std::size_t>(i)] = -1;
    }
    waiting.erase(kind);
  };
  auto launch_all = [&] {
    while (!waiting.empty()) launch(waiting.begin()->first);
  };
  for (std::size_t j = 0; j < all.size(); ++j) {
    out[j] = static_cast<int>(j);
    if (steps[j].ends) launch_all();
    for (int i : all[j])
      if (const int kind = waits[static_cast<std::size_t>(i)]; kind >= 0) launch(kind);
    const int kind = steps[j].kind;
    if (kind < 0 || steps[j].ends) continue;
    waits[j] = kind;
    waiting[kind].push_back(static_cast<int>(j));
    if (static_cast<int>(waiting[kind].size()) >= steps[j].most) launch(kind);
  }
  launch_all();
  return out;
}

Lanes assign_lanes(const Precedence& before) {
  Lanes out;
  const Matching matching(before);
  for (std::size_t j = 0; j < before.size(); ++j) {
    int i = matching.previous()[j];
    out.lane.push_back(i < 0 ? out.count++ : out.lane[static_cast<std::size_t>(i)]);
    std::vector<int>& waits = out.waits.emplace_back();
    for (int e : before[j])
      if (e != i) waits.push_back(e);
  }
  return out;
}

}  // namespace belfry
