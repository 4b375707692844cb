#include <map>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

Graph merge_common_subexpressions(const Graph& graph) {
  std::multimap<std::string, NodeId> seen;  // key → node of the new graph
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (n.op->name == kInput || n.op->name == kVariable) return {};
    std::string key = n.op->name + (n.device ? "@" + to_string(*n.device) : "");
    const auto either_order = [&](std::vector<ValueId> of) {
      if (n.op->commutative && of.size() == 2 && of[1] < of[0]) std::swap(of[0], of[1]);
      return of;
    };
    std::vector<ValueId> ids;
    for (const Value& v : inputs) ids.push_back(v.id);
    ids = either_order(std::move(ids));
    for (ValueId v : ids) key += fmt::format(",{}:{}", v.node, v.output);
    auto [first, last] = seen.equal_range(key);
    for (auto at = first; at != last; ++at) {
      const Node& twin = out.node(at->second);
      if (either_order(twin.inputs) != ids || twin.attributes != n.attributes) continue;
      return out.value({at->second, 0}).outputs();
    }
    Value v = out.add(*n.op, inputs, n.attributes, n.name);
    seen.emplace(key, v.id.node);
    return v.outputs();
  });
}

}  // namespace belfry
