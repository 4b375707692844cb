// Who reads which value of a plan, in a few arrays instead of a list per value: linear, whatever the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

/// A comparison that looks at the length first: it is made for every node, many times.
inline bool is_op(const PlanNode& n, std::string_view op) { return n.op == op; }

/// Calls with the inputs whose elements a node reads: what `values_read` lists.
template <class F>
void for_values_read(const PlanNode& n, F f) {
  const std::size_t known = n.def ? n.def->inputs.size() : 0;
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i] >= 0 && !(n.def && n.def->inputs[i < known ? i : known - 1].shape_only)) f(n.inputs[i]);
}

/// Lists of numbers by number.
class NumberLists {
 public:
  NumberLists() = default;
  /// `visit(add)` calls add(list, number) for all numbers, list by list in their order; it is called twice.
  template <class Visit>
  NumberLists(std::size_t lists, Visit visit) : first_(lists + 1) {
    visit([&](std::size_t list, int) { ++first_[list + 1]; });
    for (std::size_t i = 0; i < lists; ++i) first_[i + 1] += first_[i];
    numbers_.resize(static_cast<std::size_t>(first_[lists]));
    std::vector<int> at(first_.begin(), first_.end() - 1);
    visit([&](std::size_t list, int number) { numbers_[static_cast<std::size_t>(at[list]++)] = number; });
  }
  std::span<const int> operator[](std::size_t list) const { return {numbers_.data() + first_[list], numbers_.data() + first_[list + 1]}; }
  std::size_t size() const { return first_.empty() ? 0 : first_.size() - 1; }
  explicit operator std::vector<std::vector<int>>() const {
    std::vector<std::vector<int>> out(size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i].assign((*this)[i].begin(), (*this)[i].end());
    return out;
  }

 private:
  std::vector<int> first_, numbers_;
};

/// Per value, the nodes that read its elements, once each, in list order.
NumberLists readers_of(const TowerGraph& plan);

/// Sets every value's maker from the nodes' outputs: after nodes were added or removed.
void reindex(TowerGraph& graph);
/// Says of every optional output whether something reads it.
void mark_unread(TowerGraph& graph);

/// The value that readers of a copy name: what it brings, itself or by way of a copy on the host.
ValueIndex copied_by(const TowerGraph& graph, const PlanNode& copy);

/// As local_type(value, share).bytes(), without the type.
std::int64_t local_bytes(const PlanValue& value, const Share& share);

}  // namespace belfry
