#include <belfry/graph/passes/cut_updates.h>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

using Marks = std::vector<bool>;

bool any_input(const Node& n, const Marks& marks) {
  return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v.valid() && marks[static_cast<std::size_t>(v.node)]; });
}

bool has_rows(const Graph& g, const Node& n) {
  auto symbolic = [](const TensorType& t) { return std::any_of(t.shape.begin(), t.shape.end(), [](const Dim& d) { return d.symbolic(); }); };
  return std::any_of(n.types.begin(), n.types.end(), symbolic) || std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v.valid() && symbolic(g.type(v)); });
}

/// Nodes that feeds decide: inputs, what is computed of them, and sources that tell of the rows.
Marks told_by_feeds(const Graph& g) {
  Marks out(static_cast<std::size_t>(g.size()));
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const bool row_source = n.op->source && n.op->name != kConstant;
    out[static_cast<std::size_t>(id)] = n.op->name == kInput || row_source || has_rows(g, n) || any_input(n, out);
  }
  return out;
}

/// Nodes that losses and gradients read: the worker's, whoever else wants them.
Marks read_by_training(const Graph& g) {
  std::vector<ValueId> wanted = g.losses;
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).role == Role::backward) wanted.push_back({id, 0});
  return ancestors(g, wanted);
}

}  // namespace

CutGraphs cut_updates(const Graph& g) {
  if (g.updates.empty()) throw UserError(fmt::format("the graph '{}' has no updates, so loops with staleness or backup workers have nothing to apply: give it an optimizer (minimize), or leave these options out", g.name));
  const Marks fed = told_by_feeds(g), trains = read_by_training(g);
  // A running average of a statistic is an update in all but name: who keeps the state must add to its newest value.
  auto serves = [&](NodeId id) {
    const Node& n = g.node(id);
    if (!fed[static_cast<std::size_t>(id)]) return true;
    if (n.op->name == kInput || has_rows(g, n) || n.op->joins_towers) return false;
    return n.role == Role::update || (n.role == Role::forward && !trains[static_cast<std::size_t>(id)]);
  };
  Marks wanted(static_cast<std::size_t>(g.size()));
  std::map<ValueId, std::string> pushed;
  auto free = [&](ValueId v) {
    std::string name = g.free_name("pushed/" + g.node(v.node).name + (v.output ? fmt::format("_{}", v.output) : ""));
    while (g.metrics.contains(name) || std::any_of(pushed.begin(), pushed.end(), [&](const auto& p) { return p.second == name; })) name = g.free_name(name + "_");
    return name;
  };
  std::vector<ValueId> todo;
  for (const auto& [variable, v] : g.updates) {
    wanted[static_cast<std::size_t>(variable)] = true;
    todo.push_back(v);
  }
  while (!todo.empty()) {
    const ValueId v = todo.back();
    todo.pop_back();
    if (!v.valid()) continue;
    if (!serves(v.node)) {
      if (!pushed.contains(v)) pushed[v] = free(v);
    } else if (!wanted[static_cast<std::size_t>(v.node)]) {
      for (ValueId input : g.node(v.node).inputs) todo.push_back(input);
    }
    wanted[static_cast<std::size_t>(v.node)] = true;
  }
  for (const auto& [variable, v] : g.updates)
    for (NodeId of = g.node(variable).of; of >= 0; of = g.node(of).of) wanted[static_cast<std::size_t>(of)] = true;  // a slot follows its variable
  std::vector<NodeId> nodes;
  for (NodeId id = 0; id < g.size(); ++id)
    if (wanted[static_cast<std::size_t>(id)]) nodes.push_back(id);
  Graph server = rewrite(g, [&](Graph& out, const Node& n, NodeId id, const std::vector<Value>&) -> std::optional<std::vector<Value>> {
    if (serves(id)) return {};
    std::vector<Value> values(n.types.size());
    out.cursor = {};
    for (std::size_t k = 0; k < values.size(); ++k)
      if (auto at = pushed.find({id, static_cast<std::int32_t>(k)}); at != pushed.end()) values[k] = out.add(kInput, {}, {{"dtype", n.types[k].dtype}, {"shape", n.types[k].shape}}, at->second);
    return values;
  }, nodes);
  server.outputs.clear();
  server.losses.clear();
  server.metrics.clear();
  Graph worker = g;
  worker.updates.clear();
  CutGraphs out{Graph(g.shared_ops()), order_nodes(server), {}};
  for (const auto& [v, name] : pushed) {
    worker.metrics[name] = v;
    out.pushed.push_back(name);
  }
  out.worker = drop_dead_code(worker);
  return out;
}

}  // namespace belfry
