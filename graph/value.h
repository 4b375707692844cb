// A value of a graph: output k of a node, with the graph it belongs to. Expressions of values add nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <belfry/graph/shape.h>

namespace belfry {

class Graph;

using NodeId = std::int32_t;

struct ValueId {
  NodeId node = -1;  ///< -1: none (an optional input left out)
  std::int32_t output = 0;
  bool valid() const { return node >= 0; }
  auto operator<=>(const ValueId&) const = default;
};

struct Value {
  Graph* graph = nullptr;
  ValueId id;

  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return static_cast<int>(shape().size()); }
  /// "dense/matmul", or "pool:1" for a second output.
  std::string name() const;
  /// Output k of the same node.
  Value output(int k) const { return {graph, {id.node, k}}; }
  /// All outputs of the same node.
  std::vector<Value> outputs() const;
  explicit operator bool() const { return graph != nullptr; }
};

}  // namespace belfry
