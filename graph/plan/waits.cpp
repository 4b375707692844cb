#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Folded vector clocks: per kind of producer the furthest node that an earlier node of the same stream waited for.
class Waiter {
 public:
  Waiter(PlacedGraph& plan, const Instances& instances) : plan_(plan), instances_(instances), place_(plan.nodes.size(), -1), made_(plan.values.size(), -1), seen_(plan.values.size(), -1) {}

  void run() {
    std::vector<int> order(plan_.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return before(a, b); });
    for (int i : order) {
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
  static std::size_t length(const PlanNode& n) { return n.phases.size() + 2; }
  static int part(const PlanNode& n, std::size_t k) { return k == 0 ? n.epoch : k <= n.phases.size() ? n.phases[k - 1] : n.order; }

  bool before(int a, int b) const {
    const PlanNode &x = node(a), &y = node(b);
    const std::size_t both = std::min(length(x), length(y));
    for (std::size_t k = 0; k < both; ++k)
      if (int p = part(x, k), q = part(y, k); p != q) return p < q;
    return length(x) != length(y) ? length(x) < length(y) : a < b;
  }
  static bool covered_by(const PlanNode& a, const PlanNode& b) {
    if (length(a) != length(b)) return false;
    for (std::size_t k = 0; k < length(a); ++k)
      if (part(a, k) > part(b, k)) return false;
    return true;
  }

  /// What distinguishes producers whose waits cover each other: nodes of one number lie alike.
  int place(int i) {
    int& at = place_[static_cast<std::size_t>(i)];
    if (at >= 0) return at;
    const PlanNode& n = node(i);
    if (n.scope == Scope::tower) return at = number({-3, n.vector});
    auto [known, fresh] = lists_.try_emplace(n.holders);
    if (fresh) {
      std::vector<int> key = {-2};
      key.insert(key.end(), n.holders.begin(), n.holders.end());
      known->second = number(std::move(key));
    }
    return at = known->second;
  }
  /// The same of all instances of a value.
  int made(ValueIndex v) {
    int& at = made_[static_cast<std::size_t>(v)];
    if (at >= 0) return at;
    std::vector<int> key = {-4, place(plan_.value(v).maker)};
    for (int c : instances_.copies(v)) key.push_back(place(c));
    return at = number(std::move(key));
  }
  int number(std::vector<int> key) { return numbers_.try_emplace(std::move(key), static_cast<int>(numbers_.size())).first->second; }

  /// Of the nodes that waited, who and for which value. `furthest`: per part of a producer's mark the most of all, so that
  /// what no single one can cover is known without a look at each.
  struct Waited {
    std::vector<std::pair<int, ValueIndex>> nodes;
    std::vector<int> furthest;
  };

  /// Which instance is meant depends on the device: all of them must be covered.
  bool covers(ValueIndex later, ValueIndex v, bool moves) const {
    if (!covered_by(plan_.maker(v), plan_.maker(later))) return false;
    if (moves) return true;
    auto a = instances_.copies(v), b = instances_.copies(later);  // as many: they are of one kind
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!covered_by(node(a[i]), node(b[i]))) return false;
    return true;
  }

  void add(int i, Wait::Relation relation, ValueIndex v, int scope) {
    PlanNode& n = node(i);
    const bool moves = moves_values(n);
    const PlanNode& m = plan_.maker(v);
    const auto key = std::tuple(made(v), place(i), (static_cast<int>(relation) * 8 + scope + 1) * 2 + moves);
    Waited& waited = waited_[key];
    bool reached = waited.furthest.size() == length(m);
    for (std::size_t k = 0; reached && k < length(m); ++k) reached = part(m, k) <= waited.furthest[k];
    for (std::size_t w = waited.nodes.size(); reached && w-- > 0;)
      if (auto [earlier, producer] = waited.nodes[w]; covered_by(node(earlier), n) && covers(producer, v, moves)) return;
    waited.nodes.emplace_back(i, v);
    if (waited.furthest.size() < length(m)) waited.furthest.resize(length(m), -2);
    for (std::size_t k = 0; k < length(m); ++k) waited.furthest[k] = std::max(waited.furthest[k], part(m, k));
    n.waits.push_back({relation, v});
  }

  void wait_for(int i, ValueIndex v) {
    const PlanNode &n = node(i), &m = plan_.maker(v);
    const bool copied = !instances_.copies(v).empty();
    if (n.scope == Scope::tower && m.scope == Scope::tower) {
      if (m.vector != n.vector || copied) add(i, Wait::kOwn, v, -1);
    } else if (m.scope == Scope::tower) add(i, n.op == kPreAggregate ? Wait::kLocal : Wait::kTowers, v, -1);
    else if (m.scope == Scope::device) add(i, Wait::kEvery, v, -1);
    else if (m.scope == Scope::state && (!copied || n.op == kCopy || n.op == kSplit)) return;
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
  std::vector<int> place_, made_, seen_;  // seen: per value, the last node that was asked
  std::map<DeviceList, int> lists_;
  std::map<std::vector<int>, int> numbers_;
  std::map<std::tuple<int, int, int>, Waited> waited_;
  std::map<std::pair<int, int>, bool> includes_;
};

}  // namespace

void set_waits(PlacedGraph& plan, const Instances& instances) { Waiter(plan, instances).run(); }

}  // namespace belfry
