#include <belfry/ops/emit.h>

namespace belfry {

Value emit(std::string_view op, const std::vector<Value>& inputs, const Attributes& attributes, SourceLine at, const std::string& name) {
  Graph* graph = nullptr;
  for (const Value& v : inputs)
    if (v && !graph) graph = v.graph;
  if (!graph) throw UserError("[" + std::string(op) + "] all inputs are empty Values" + (at.file ? " at " + at.text() : ""));
  SourceGuard guard(*graph, at);
  return graph->add(op, inputs, attributes, name);
}

}  // namespace belfry
