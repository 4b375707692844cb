#include <algorithm>
#include <map>
#include <set>

#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Folded vector clocks: per kind of producer the furthest node that an earlier node of the same stream waited for.
class Waiter {
 public:
  explicit Waiter(PlacedGraph& plan) : plan_(plan), instances_(plan) {}

  void run() {
    std::vector<std::size_t> order(plan_.nodes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return mark(plan_.nodes[a]) < mark(plan_.nodes[b]); });
    for (std::size_t i : order) {
      PlanNode& n = plan_.nodes[i];
      n.waits.clear();
      std::set<ValueIndex> seen;
      for (ValueIndex v : values_read(n))
        if (seen.insert(v).second) wait_for(n, v);
      for (auto [u, variable] : n.donates) n.waits.push_back({Wait::kReaders, variable});
    }
  }

 private:
  using Mark = std::vector<int>;
  static Mark mark(const PlanNode& n) {
    Mark out = {n.epoch};
    out.insert(out.end(), n.phases.begin(), n.phases.end());
    out.push_back(n.order);
    return out;
  }
  static bool covered_by(const Mark& a, const Mark& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] > b[i]) return false;
    return true;
  }

  /// What distinguishes producers whose waits cover each other.
  std::vector<int> place(const PlanNode& n) const {
    std::vector<int> out = {n.scope == Scope::tower ? n.vector : -2};
    out.insert(out.end(), n.holders.begin(), n.holders.end());
    return out;
  }

  void add(PlanNode& n, Wait::Relation relation, ValueIndex v, std::vector<std::vector<int>> kind) {
    kind.push_back(place(n));
    kind.push_back({static_cast<int>(relation)});
    Mark at = mark(n), of = mark(plan_.maker(v));
    // Which instance is meant depends on the device: all of them must be covered.
    if (!moves_values(n))
      for (int c : instances_.copies(v)) {
        Mark copy = mark(plan_.nodes[static_cast<std::size_t>(c)]);
        of.insert(of.end(), copy.begin(), copy.end());
      }
    auto& waited = seen_[kind];
    for (const auto& [earlier, producer] : waited)
      if (covered_by(earlier, at) && covered_by(of, producer)) return;
    waited.emplace_back(at, of);
    n.waits.push_back({relation, v});
  }

  void wait_for(PlanNode& n, ValueIndex v) {
    const PlanNode& m = plan_.maker(v);
    const std::vector<int>& copies = instances_.copies(v);
    std::vector<std::vector<int>> kind = {place(m), {moves_values(n)}};
    for (int c : copies) kind.push_back(place(plan_.nodes[static_cast<std::size_t>(c)]));
    if (n.scope == Scope::tower && m.scope == Scope::tower) {
      if (m.vector != n.vector || !copies.empty()) add(n, Wait::kOwn, v, kind);
    } else if (m.scope == Scope::tower) add(n, n.op == kPreAggregate ? Wait::kLocal : Wait::kTowers, v, kind);
    else if (m.scope == Scope::device || (m.scope == Scope::shared && joins_ranges(plan_, n))) add(n, Wait::kEvery, v, kind);
    else if (m.scope == Scope::state && (copies.empty() || n.op == kCopy || n.op == kSplit)) return;
    else if (n.scope == Scope::tower || !std::includes(sorted(m.holders).begin(), sorted(m.holders).end(), sorted(n.holders).begin(), sorted(n.holders).end())) {
      kind.push_back({static_cast<int>(m.scope)});
      add(n, Wait::kShared, v, kind);
    }
  }

  const std::vector<int>& sorted(const std::vector<int>& v) {
    auto [at, fresh] = sorted_.try_emplace(v, v);
    if (fresh) std::sort(at->second.begin(), at->second.end());
    return at->second;
  }

  PlacedGraph& plan_;
  Instances instances_;
  std::map<std::vector<std::vector<int>>, std::vector<std::pair<Mark, Mark>>> seen_;
  std::map<std::vector<int>, std::vector<int>> sorted_;
};

}  // namespace

void set_waits(PlacedGraph& plan) { Waiter(plan).run(); }

}  // namespace belfry
