#include "graphs.h"

#include <map>

#include <fmt/format.h>

#include <belfry/graph/rewrite.h>
#include <belfry/graph/text.h>

namespace belfry::test {

namespace {

class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b) : a_(a), b_(b) {}

  std::string run() {
    if (a_.size() != b_.size()) return fmt::format("{} nodes and {}:\n{}and\n{}", a_.size(), b_.size(), to_text(a_), to_text(b_));
    if (a_.metrics.size() != b_.metrics.size() || a_.updates.size() != b_.updates.size()) return "they have other metrics or updates";
    for (const auto& [name, v] : a_.metrics) {
      if (!b_.metrics.contains(name)) return "only one has the metric " + name;
      compare(v, b_.metrics.at(name));
    }
    all(a_.outputs, b_.outputs);
    all(a_.losses, b_.losses);
    for (const auto& [variable, v] : a_.updates) {
      NodeId twin = b_.find_node(a_.node(variable).name);
      if (twin < 0 || !b_.updates.contains(twin)) return "only one updates " + a_.node(variable).name;
      compare(v, b_.updates.at(twin));
    }
    return difference_;
  }

 private:
  void all(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    if (a.size() != b.size()) difference_ = "they are asked for other numbers of values";
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) compare(a[i], b[i]);
  }

  void compare(ValueId x, ValueId y) {
    if (!difference_.empty()) return;
    if (x.output != y.output || x.valid() != y.valid()) return part(x, y);
    if (!x.valid()) return;
    auto [known, fresh] = twins_.try_emplace(x.node, y.node);
    auto [back, fresh_back] = back_.try_emplace(y.node, x.node);
    if (known->second != y.node || back->second != x.node) return part(x, y);
    if (!fresh) return;
    const Node &m = a_.node(x.node), &n = b_.node(y.node);
    // Inputs and variables are their names.
    bool named = m.op->inputs.empty() && m.op->name != kConstant && !m.op->source;
    if (m.op != n.op || !(m.attributes == n.attributes) || m.types != n.types || m.device != n.device || m.inputs.size() != n.inputs.size() || (named && m.name != n.name)) return part(x, y);
    for (std::size_t i = 0; i < m.inputs.size(); ++i) compare(m.inputs[i], n.inputs[i]);
  }

  void part(ValueId x, ValueId y) {
    difference_ = fmt::format("they part at\n  {}\nand\n  {}\nin\n{}and\n{}", x.valid() ? to_text(a_, x.node) : "nothing", y.valid() ? to_text(b_, y.node) : "nothing", to_text(a_), to_text(b_));
  }

  const Graph &a_, &b_;
  std::map<NodeId, NodeId> twins_, back_;
  std::string difference_;
};

}  // namespace

std::string graph_difference(const Graph& a, const Graph& b) { return Comparison(a, b).run(); }

}  // namespace belfry::test
