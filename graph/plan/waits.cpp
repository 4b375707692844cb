#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Folded vector clocks: per kind of producer the furthest node that an earlier node of the same stream waited for.
class Waiter {
 public:
  Waiter(PlacedGraph& plan, const Instances& instances)
      : plan_(plan), instances_(instances), stride_(plan.classes.size() + 2), marks_(plan.nodes.size() * stride_), made_(plan.values.size(), -1), seen_(plan.values.size(), -1) {
    length_.reserve(plan.nodes.size());
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
      const PlanNode& n = plan.nodes[i];
      int* mark = &marks_[i * stride_];
      *mark++ = n.epoch;
      mark = std::copy(n.phases.begin(), n.phases.end(), mark);
      *mark = n.order;
      length_.push_back(n.phases.size() + 2);
    }
    waited_.reserve(plan.nodes.size() / 2);
    waiting_.reserve(plan.nodes.size());
    furthest_.reserve(plan.nodes.size());
  }

  void run() {
    number_places();
    for (int i : in_time()) {
      PlanNode& n = node(i);
      n.waits.clear();
      for_values_read(n, [&](ValueIndex v) {
        if (std::exchange(seen_[static_cast<std::size_t>(v)], i) != i) wait_for(i, v);
      });
      for (auto [u, variable] : n.donates) n.waits.push_back({Wait::kReaders, variable});
    }
  }

 private:
  PlanNode& node(int i) { return plan_.nodes[static_cast<std::size_t>(i)]; }
  const PlanNode& node(int i) const { return plan_.nodes[static_cast<std::size_t>(i)]; }

  // A node's mark: its epoch, its phase per class, its order.
  std::size_t length(int i) const { return length_[static_cast<std::size_t>(i)]; }
  int part(int i, std::size_t k) const { return marks_[static_cast<std::size_t>(i) * stride_ + k]; }

  /// Nodes by their marks.
  std::vector<int> in_time() const {
    struct Start {
      std::int64_t ab;  // the first two parts
      int c, node;
    };
    std::vector<Start> all;
    all.reserve(plan_.nodes.size());
    for (int i = 0; i < static_cast<int>(plan_.nodes.size()); ++i) all.push_back({part(i, 0) * (std::int64_t{1} << 32) + part(i, 1), length(i) == 2 ? -2 : part(i, 2), i});
    std::sort(all.begin(), all.end(), [&](const Start& x, const Start& y) {
      if (x.ab != y.ab) return x.ab < y.ab;
      return x.c != y.c ? x.c < y.c : further(x.node, y.node);
    });
    std::vector<int> out;
    out.reserve(all.size());
    for (const Start& s : all) out.push_back(s.node);
    return out;
  }
  /// Where the first three parts are equal.
  bool further(int a, int b) const {
    for (std::size_t k = 3; k < std::min(length(a), length(b)); ++k)
      if (int p = part(a, k), q = part(b, k); p != q) return p < q;
    return a < b;
  }
  bool covered_by(int a, int b) const {
    if (length(a) != length(b)) return false;
    for (std::size_t k = 0; k < length(a); ++k)
      if (part(a, k) > part(b, k)) return false;
    return true;
  }

  /// What distinguishes producers whose waits cover each other: nodes of one number lie alike. Vectors first, then lists of holders.
  void number_places() {
    place_.reserve(plan_.nodes.size());
    std::map<DeviceList, int> lists;
    const DeviceList* last = nullptr;  // neighbours often lie alike
    for (const PlanNode& n : plan_.nodes) {
      if (n.scope == Scope::tower) {
        place_.push_back(n.vector);
        continue;
      }
      if (!last || !(*last == n.holders)) {
        last = &n.holders;
        last_place_ = lists.try_emplace(n.holders, static_cast<int>(plan_.vectors.size() + lists.size())).first->second;
      }
      place_.push_back(last_place_);
    }
  }
  int place(int i) const { return place_[static_cast<std::size_t>(i)]; }
  /// The same of all instances of a value: negative where it has copies.
  int made(ValueIndex v) {
    auto copies = instances_.copies(v);
    if (copies.empty()) return place(plan_.value(v).maker);
    int& at = made_[static_cast<std::size_t>(v)];
    if (at != -1) return at;
    key_.assign(1, place(plan_.value(v).maker));
    for (int c : copies) key_.push_back(place(c));
    return at = numbers_.try_emplace(key_, -2 - static_cast<int>(numbers_.size())).first->second;
  }

  /// Of the nodes that waited, who and for which value, the last first. `furthest`: per part of a producer's mark the most of
  /// all, so that what no single one can cover is known without a look at each.
  struct Waited {
    int last = -1;              ///< of the list in `waiting_`
    std::size_t furthest = 0;   ///< the begin of `length` numbers in `furthest_`
    std::size_t length = 0;
  };
  struct Waiting {
    int node;
    ValueIndex value;
    int before;
  };

  struct KeyHash {
    std::size_t operator()(const std::array<int, 3>& key) const {
      std::size_t out = 0;
      for (int part : key) out = (out + static_cast<std::size_t>(part)) * 0x9E3779B97F4A7C15u;
      return out ^ out >> 32;
    }
  };

  /// Which instance is meant depends on the device: all of them must be covered.
  bool covers(ValueIndex later, ValueIndex v, bool moves) const {
    if (!covered_by(plan_.value(v).maker, plan_.value(later).maker)) return false;
    if (moves) return true;
    auto a = instances_.copies(v), b = instances_.copies(later);  // as many: they are of one kind
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!covered_by(a[i], b[i])) return false;
    return true;
  }

  void add(int i, Wait::Relation relation, ValueIndex v, int scope) {
    PlanNode& n = node(i);
    const bool moves = moves_values(n);
    const int m = plan_.value(v).maker;
    Waited& waited = waited_[{made(v), place(i), (static_cast<int>(relation) * 8 + scope + 1) * 2 + moves}];
    bool reached = waited.length == length(m);
    for (std::size_t k = 0; reached && k < length(m); ++k) reached = part(m, k) <= furthest_[waited.furthest + k];
    for (int w = reached ? waited.last : -1; w >= 0; w = waiting_[static_cast<std::size_t>(w)].before)
      if (const Waiting& earlier = waiting_[static_cast<std::size_t>(w)]; covered_by(earlier.node, i) && covers(earlier.value, v, moves)) return;
    waiting_.push_back({i, v, std::exchange(waited.last, static_cast<int>(waiting_.size()))});
    if (!waited.length) waited.furthest = furthest_.size(), furthest_.resize(furthest_.size() + stride_, -2);
    waited.length = std::max(waited.length, length(m));
    for (std::size_t k = 0; k < length(m); ++k) furthest_[waited.furthest + k] = std::max(furthest_[waited.furthest + k], part(m, k));
    n.waits.push_back({relation, v});
  }

  void wait_for(int i, ValueIndex v) {
    const PlanNode &n = node(i), &m = plan_.maker(v);
    const bool copied = !instances_.copies(v).empty();
    if (n.scope == Scope::tower && m.scope == Scope::tower) {
      if (m.vector != n.vector || copied) add(i, Wait::kOwn, v, -1);
    } else if (m.scope == Scope::tower) add(i, is_op(n, kPreAggregate) && n.owners == m.vector ? Wait::kLocal : Wait::kTowers, v, -1);
    else if (m.scope == Scope::device || (m.scope == Scope::shared && joins_ranges(plan_, n))) add(i, Wait::kEvery, v, -1);
    else if (is_there(m) && (!copied || is_op(n, kCopy) || is_op(n, kSplit))) return;
    else if (n.scope == Scope::tower || !includes(plan_.value(v).maker, i)) add(i, Wait::kShared, v, static_cast<int>(m.scope));
  }

  /// Whether all holders of node b are among those of node a.
  bool includes(int a, int b) {
    const int p = place(a), q = place(b);
    if (p == q) return true;
    auto [known, fresh] = includes_.try_emplace({p, q});
    if (fresh) {
      std::vector<int> all = node(a).holders, some = node(b).holders;
      std::sort(all.begin(), all.end());
      std::sort(some.begin(), some.end());
      known->second = std::includes(all.begin(), all.end(), some.begin(), some.end());
    }
    return known->second;
  }

  PlacedGraph& plan_;
  const Instances& instances_;
  std::size_t stride_;
  std::vector<int> marks_;          // per node
  std::vector<std::size_t> length_;
  std::vector<int> place_, made_, seen_;  // per node; per value; per value, the last node that was asked
  int last_place_ = -1;
  std::vector<int> key_;
  std::map<std::vector<int>, int> numbers_;
  std::unordered_map<std::array<int, 3>, Waited, KeyHash> waited_;
  std::vector<Waiting> waiting_;
  std::vector<int> furthest_;
  std::map<std::pair<int, int>, bool> includes_;
};

}  // namespace

void set_waits(PlacedGraph& plan, const Instances& instances) { Waiter(plan, instances).run(); }

}  // namespace belfry
