// A pass: one function from graph to graph; the runner times, dumps and verifies it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// What a graph has been through; the verifier knows what each stage forbids.
enum class Stage { built, differentiated, simplified };

struct Pass {
  std::string name;
  std::function<Graph(const Graph&)> run;
  Stage after = Stage::built;
};

struct PassTime {
  std::string name;
  double seconds = 0;
  NodeId nodes_before = 0, nodes_after = 0;
};

struct PassOptions {
  std::vector<std::string> disabled = {};                                 ///< by name
  std::function<void(std::string_view pass, const Graph& after)> dump = {};  ///< called behind every pass that ran
  std::vector<PassTime>* times = nullptr;
};

/// Skips if disabled, times, runs, dumps, verifies.
Graph run_pass(const Pass& pass, const Graph& graph, const PassOptions& options = {});
Graph run_passes(const std::vector<Pass>& passes, const Graph& graph, const PassOptions& options = {});

/// InternalError if the graph breaks a rule of the stage: topological order, types as inferred, unique names, no training
/// short form once differentiated, updates of variables alone and of their type.
void verify(const Graph& graph, Stage stage);

/// Drops nodes that no root is computed from. Inputs stay, so that feeds do not depend on what is fetched.
Graph drop_dead_code(const Graph& graph);
/// Nodes of the same op, attributes, inputs and device become one; random ones too, since stream and step are inputs.
Graph merge_common_subexpressions(const Graph& graph);
/// Computes nodes whose inputs are all constants with the op's reference, up to `limit` elements.
Graph fold_constants(const Graph& graph);
/// Replaces every op that has another form after gradients (batch norm with sync).
Graph write_out_ops(const Graph& graph);
/// Inputs first, then variables, then all else as it stood: the order of a graph's file, so that both give one plan.
Graph order_nodes(const Graph& graph);
/// Symbols get sizes: all but the rows' before a graph is placed.
Graph bind_symbols(const Graph& graph, const std::map<std::string, std::int64_t>& sizes);
/// The graph as it stands, without updates, losses and slots: only what `outputs` need, by default its own and its metrics.
Graph without_training(const Graph& graph, const std::vector<std::string>& outputs = {});
/// That, with ops in their form for inference.
Graph for_inference(const Graph& graph, const std::vector<std::string>& outputs = {});

}  // namespace belfry
