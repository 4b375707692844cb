#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

Graph without_training(const Graph& graph, const std::vector<std::string>& outputs) {
  Graph source = graph;
  source.updates.clear();
  source.losses.clear();
  source.train.reset();
  source.gate = {};
  if (!outputs.empty()) {
    source.outputs.clear();
    source.metrics.clear();
    for (const std::string& name : outputs) source.outputs.push_back(source.at(name));
  }
  return only(source, roots(source));
}

Graph for_inference(const Graph& graph, const std::vector<std::string>& outputs) {
  Graph out = rewrite(without_training(graph, outputs), [](Graph& g, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    if (!n.op->inference) return {};
    return built_by(n.op->inference, g, n, inputs);
  });
  return only(out, roots(out));
}

}  // namespace belfry
