// Adding one node from a free function of Values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Adds a node to the graph of the first input that is given. The outermost caller's line is kept with the node.
Value emit(std::string_view op, const std::vector<Value>& inputs, const Attributes& attributes, SourceLine at, const std::string& name = {});

/// Keeps the outermost line of the user's program while a layer or loss made of several ops is built.
class SourceGuard {
 public:
  SourceGuard(Graph& graph, SourceLine at) : graph_(graph), mine_(!graph.cursor.source.file) {
    if (mine_) graph_.cursor.source = at;
  }
  ~SourceGuard() {
    if (mine_) graph_.cursor.source = {};
  }
  SourceGuard(const SourceGuard&) = delete;
  SourceGuard& operator=(const SourceGuard&) = delete;

 private:
  Graph& graph_;
  bool mine_;
};

}  // namespace belfry
