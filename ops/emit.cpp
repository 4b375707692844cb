#include <belfry/ops/emit.h>

#include <belfry/ops/graph_of.h>

namespace belfry {

Value emit(std::string_view op, const std::vector<Value>& inputs, const Attributes& attributes, SourceLine at, const std::string& name) {
  Graph* graph = nullptr;
  for (const Value& v : inputs)
    if (v && !graph) graph = v.graph;
  if (!graph) throw UserError("[" + std::string(op) + "] all inputs are empty Values" + (at.file ? " at " + at.text() : ""));
  SourceGuard guard(*graph, at);
  return graph->add(op, inputs, attributes, name);
}

Graph& graph_of(Value x, std::string_view function, SourceLine at) {
  if (!x) throw UserError("[" + std::string(function) + "] its input is an empty Value" + (at.file ? " at " + at.text() : ""));
  return *x.graph;
}

}  // namespace belfry
