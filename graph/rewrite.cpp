#include <belfry/graph/rewrite.h>

#include <numeric>

namespace belfry {

std::vector<ValueId> roots(const Graph& g) {
  std::vector<ValueId> out = g.outputs;
  for (const auto& [name, v] : g.metrics) out.push_back(v);
  out.insert(out.end(), g.losses.begin(), g.losses.end());
  for (const auto& [variable, v] : g.updates) {
    out.push_back({variable, 0});
    out.push_back(v);
  }
  if (g.gate.valid()) out.push_back(g.gate);
  if (g.train) {
    out.insert(out.end(), g.train->losses.begin(), g.train->losses.end());
    if (g.train->learning_rate.valid()) out.push_back(g.train->learning_rate);
  }
  return out;
}

std::vector<bool> ancestors(const Graph& graph, const std::vector<ValueId>& of) {
  std::vector<bool> seen(static_cast<std::size_t>(graph.size()));
  std::vector<NodeId> todo;
  for (ValueId v : of) todo.push_back(v.node);
  while (!todo.empty()) {
    NodeId id = todo.back();
    todo.pop_back();
    if (id < 0 || seen[static_cast<std::size_t>(id)]) continue;
    seen[static_cast<std::size_t>(id)] = true;
    for (ValueId v : graph.node(id).inputs) todo.push_back(v.node);
  }
  return seen;
}

Graph rewrite(const Graph& graph, const RewriteRule& rule) {
  std::vector<NodeId> all(static_cast<std::size_t>(graph.size()));
  std::iota(all.begin(), all.end(), 0);
  return rewrite(graph, rule, all);
}

Graph only(const Graph& graph, const std::vector<ValueId>& of) {
  std::vector<bool> live = ancestors(graph, of);
  std::vector<NodeId> nodes;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (live[static_cast<std::size_t>(id)]) nodes.push_back(id);
  return rewrite(graph, [](auto&&...) { return std::nullopt; }, nodes);
}

Graph rewrite(const Graph& graph, const RewriteRule& rule, const std::vector<NodeId>& nodes) {
  Graph out(graph.shared_ops(), graph.name);
  out.row_symbol = graph.row_symbol;
  out.precision = graph.precision;
  std::vector<std::vector<ValueId>> moved(static_cast<std::size_t>(graph.size()));
  auto to_new = [&](ValueId v) -> ValueId {
    if (!v.valid() || moved[static_cast<std::size_t>(v.node)].empty()) return {};
    return moved[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)];
  };
  for (NodeId id : nodes) {
    const Node& n = graph.node(id);
    std::vector<Value> inputs;
    for (ValueId v : n.inputs) {
      ValueId m = to_new(v);
      inputs.push_back(m.valid() ? out.value(m) : Value{});
    }
    NodeId of = n.of >= 0 ? to_new({n.of, 0}).node : -1;
    out.cursor = {"", n.device, of, n.role, n.source, &graph};
    auto replaced = rule(out, n, id, inputs);
    std::vector<ValueId>& mine = moved[static_cast<std::size_t>(id)];
    if (replaced) {
      for (const Value& v : *replaced) mine.push_back(v.id);
      mine.resize(n.types.size());
      if (mine[0].valid() && out.find_node(n.name) < 0) out.aliases[n.name] = mine[0];
    } else {
      Value v = out.add(*n.op, inputs, n.attributes, n.name);
      for (std::size_t k = 0; k < n.types.size(); ++k) mine.push_back({v.id.node, static_cast<std::int32_t>(k)});
    }
  }
  out.cursor = {};
  for (const auto& [name, v] : graph.aliases)
    if (ValueId m = to_new(v); m.valid()) out.aliases[name] = m;
  auto follow = [&](const std::vector<ValueId>& from, std::vector<ValueId>& to) {
    for (ValueId v : from)
      if (ValueId m = to_new(v); m.valid()) to.push_back(m);
  };
  follow(graph.outputs, out.outputs);
  follow(graph.losses, out.losses);
  for (const auto& [name, v] : graph.metrics)
    if (ValueId m = to_new(v); m.valid()) out.metrics[name] = m;
  for (const auto& [variable, v] : graph.updates)
    if (ValueId w = to_new({variable, 0}), m = to_new(v); w.valid() && m.valid()) out.updates[w.node] = m;
  out.gate = to_new(graph.gate);
  if (graph.train) {
    out.train = graph.train;
    for (ValueId& v : out.train->losses) v = to_new(v);
    out.train->learning_rate = to_new(graph.train->learning_rate);
  }
  return out;
}

}  // namespace belfry
