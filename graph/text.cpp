#include <belfry/graph/text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace belfry {

namespace {

std::string names(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> out;
  for (ValueId v : values) out.push_back(v.valid() ? graph.name_of(v) : "-");
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string attributes_of(const Node& n) {
  std::vector<std::string> out;
  for (const AttributeDef& def : n.op->attributes)
    if (const AttributeValue* v = n.attributes.find(def.name); v && def.fallback != *v) out.push_back(fmt::format("{}: {}", def.name, to_string(*v)));
  return out.empty() ? "" : fmt::format(" {{{}}}", fmt::join(out, ", "));
}

}  // namespace

std::string to_text(const Graph& graph, NodeId id) {
  const Node& n = graph.node(id);
  std::vector<std::string> types;
  for (const TensorType& t : n.types) types.push_back(to_string(t));
  std::string out = fmt::format("{} = {}({}){} : {}", n.name, n.op->name, names(graph, n.inputs), attributes_of(n), fmt::join(types, ", "));
  return n.device ? out + " @" + to_string(*n.device) : out;
}

std::string to_text(const Graph& graph) {
  std::string out = fmt::format("graph {}\n", graph.name);
  if (graph.precision != f32) out += fmt::format("precision {}\n", name_of(graph.precision));
  for (NodeId id = 0; id < graph.size(); ++id) out += to_text(graph, id) + "\n";
  if (!graph.outputs.empty()) out += fmt::format("outputs {}\n", names(graph, graph.outputs));
  for (const auto& [name, v] : graph.metrics) out += fmt::format("metric {} = {}\n", name, graph.name_of(v));
  if (graph.train) {
    out += fmt::format("minimize {} by {}", names(graph, graph.train->losses), graph.train->optimizer);
    for (const auto& [name, v] : graph.train->options.entries()) out += fmt::format(" {}: {}", name, to_string(v));
    if (graph.train->learning_rate.valid()) out += " learning_rate: " + graph.name_of(graph.train->learning_rate);
    for (const auto& [name, v] : graph.train->schedule.entries()) out += fmt::format(" learning_rate/{}: {}", name, to_string(v));
    out += "\n";
  }
  if (!graph.losses.empty()) out += fmt::format("losses {}\n", names(graph, graph.losses));
  for (const auto& [variable, v] : graph.updates) out += fmt::format("update {} = {}\n", graph.node(variable).name, graph.name_of(v));
  return out;
}

}  // namespace belfry
