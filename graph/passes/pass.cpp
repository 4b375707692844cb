#include <belfry/graph/passes/pass.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>
#include <belfry/graph/structural.h>

namespace belfry {

Graph run_pass(const Pass& pass, const Graph& graph, const PassOptions& options) {
  if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) return graph;
  auto start = std::chrono::steady_clock::now();
  Graph out = pass.run(graph);
  if (options.times)
    options.times->push_back({pass.name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), graph.size(), out.size()});
  if (options.dump) options.dump(pass.name, out);
  verify(out, pass.after);
  return out;
}

Graph run_passes(const std::vector<Pass>& passes, const Graph& graph, const PassOptions& options) {
  Graph out = graph;
  for (const Pass& pass : passes) out = run_pass(pass, out, options);
  return out;
}

void verify(const Graph& graph, Stage stage) {
  auto broken = [&](const std::string& what) { throw InternalError(fmt::format("graph '{}': {}", graph.name, what)); };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (graph.find_node(n.name) != id) broken(fmt::format("the name '{}' does not lead to its node", n.name));
    for (ValueId v : n.inputs)
      if (v.valid() && (v.node >= id || v.output >= static_cast<int>(graph.node(v.node).types.size()))) broken(fmt::format("'{}' reads what is not there before it", n.name));
    if (n.of >= graph.size()) broken(fmt::format("'{}' follows a node that is not there", n.name));
    InferContext context(graph, *n.op, n.name, n.attributes, n.inputs);
    if (inferred_types(context) != n.types) broken(fmt::format("'{}' has other types than its op infers", n.name));
  }
  for (auto [variable, v] : graph.updates) {
    if (graph.node(variable).op->name != kVariable) broken(fmt::format("'{}' is updated but no variable", graph.node(variable).name));
    if (graph.type(v) != graph.type({variable, 0})) broken(fmt::format("the update of '{}' has another type", graph.node(variable).name));
  }
  if (stage != Stage::built && graph.train) broken("the short form of training is still there");
}

}  // namespace belfry
