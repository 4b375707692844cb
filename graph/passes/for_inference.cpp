#include <belfry/graph/contexts.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

Graph for_inference(const Graph& graph, const std::vector<std::string>& outputs) {
  Graph source = graph;
  source.updates.clear();
  source.losses.clear();
  source.train.reset();
  if (!outputs.empty()) {
    source.outputs.clear();
    source.metrics.clear();
    for (const std::string& name : outputs) source.outputs.push_back(source.at(name));
  }
  auto prune = [](const Graph& g) {
    std::vector<bool> live = ancestors(g, roots(g));
    auto copy = [](Graph&, const Node&, NodeId, const std::vector<Value>&) { return std::nullopt; };
    return rewrite(g, copy, [&](NodeId id) { return live[static_cast<std::size_t>(id)]; });
  };
  Graph out = rewrite(prune(source), [](Graph& g, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!n.op->inference) return {};
    g.cursor.scope = n.name;
    GradientContext context(g, n.attributes, inputs);
    std::vector<Value> values = n.op->inference(context);
    g.cursor.scope = {};
    return values;
  });
  return prune(out);
}

}  // namespace belfry
