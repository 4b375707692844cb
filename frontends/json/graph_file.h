// Graphs as files: one JSON format, one canonical text with an input, variable or node per line.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <belfry/graph/graph.h>

namespace belfry {

/// Tensors of more elements than this do not stand in the JSON, but in a side file beside it.
inline constexpr std::int64_t kInlineElements = 64;

/// The side file: tensors by name (the XXH3 of their type and bytes, in hex).
struct TensorStore {
  std::function<void(const std::string& name, const HostTensor& tensor)> put = {};
  std::function<HostTensor(const std::string& name)> get = {};  ///< UserError if there is none
};

/// The canonical text: keys in schema order, default attributes left out, shortest decimals, a newline at the end. `state`
/// names the file of the variables' values. UserError where a large tensor needs a store that is not given.
std::string write_graph(const Graph& graph, const TensorStore& tensors = {}, const std::string& state = {});

/// The short form ("train") and the long one ("losses", "updates"). Nodes may stand in any order. UserErrors "file:line: /pointer: …".
/// In memory inputs come first, then variables, then nodes.
Graph read_graph(const std::string& text, const std::string& file, std::shared_ptr<const OpSet> ops, const TensorStore& tensors = {}, std::string* state = nullptr);

}  // namespace belfry
