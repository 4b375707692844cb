#include <belfry/graph/passes/pass.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

Graph bind_symbols(const Graph& graph, const std::map<std::string, std::int64_t>& sizes) {
  auto bound = [&](Shape shape) {
    for (Dim& d : shape)
      if (auto at = sizes.find(d.symbol); at != sizes.end()) d = Dim(d.at(at->second));
    return shape;
  };
  return rewrite(graph, [&](Graph& out, const Node& n, NodeId, const std::vector<Value>& inputs) -> std::optional<std::vector<Value>> {
    Attributes attributes;
    for (const auto& [name, value] : n.attributes.entries()) {
      const Shape* shape = std::get_if<Shape>(&value);
      attributes.set(name, shape ? AttributeValue(bound(*shape)) : value);
    }
    return out.add(*n.op, inputs, attributes, n.name).outputs();
  });
}

}  // namespace belfry
