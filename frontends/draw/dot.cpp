#include <belfry/frontends/draw/dot.h>

#include <map>
#include <vector>

#include <fmt/format.h>

namespace belfry {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

std::string opening(const std::string& name) {
  return fmt::format("digraph {} {{\n  node [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=10]\n  edge [fontname=\"sans-serif\", fontsize=8]\n", quoted(name));
}

std::string node_line(std::size_t id, const std::string& name, const std::string& op, const char* indent) {
  return fmt::format("{}n{} [label={}{}]\n", indent, id, quoted(name == op ? name : name + "\n" + op), op == kVariable ? ", shape=cylinder" : "");
}

}  // namespace

std::string draw_dot(const Graph& graph) {
  std::string out = opening(graph.name);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) out += node_line(i, graph.nodes()[i].name, graph.nodes()[i].op->name, "  ");
  for (std::size_t i = 0; i < graph.nodes().size(); ++i)
    for (ValueId v : graph.nodes()[i].inputs)
      if (v.valid()) out += fmt::format("  n{} -> n{} [label={}]\n", v.node, i, quoted(to_string(graph.type(v))));
  return out + "}\n";
}

std::string draw_dot(const PlacedGraph& plan) {
  std::map<std::string, std::vector<std::size_t>> frames;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) frames[to_string(plan.cluster.ids(all_devices(plan, plan.nodes[i])))].push_back(i);
  std::string out = opening(plan.graph->name);
  int frame = 0;
  for (const auto& [where, nodes] : frames) {
    out += fmt::format("  subgraph cluster_{} {{\n    label={}\n", frame++, quoted(where));
    for (std::size_t i : nodes) out += node_line(i, plan.nodes[i].name, plan.nodes[i].op, "    ");
    out += "  }\n";
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    for (ValueIndex v : plan.nodes[i].inputs)
      if (v >= 0) out += fmt::format("  n{} -> n{} [label={}]\n", plan.value(v).maker, i, quoted(to_string(plan.value(v).type)));
  return out + "}\n";
}

}  // namespace belfry
