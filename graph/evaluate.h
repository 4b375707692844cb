// One node on host tensors, by its reference, and a whole graph.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Outputs with the given local types; an input that is left out is a null pointer.
std::vector<HostTensor> evaluate(const OpDef& op, const Attributes& attributes, const std::vector<const HostTensor*>& inputs,
                                 const std::vector<TensorType>& output_types, const std::vector<LocalType>& local, const Share& share);

/// Per node its outputs in one step of the whole batch; `given` has the values of inputs and variables.
std::vector<std::vector<HostTensor>> evaluate(const Graph& graph, std::int64_t batch, const std::function<HostTensor(const Node&)>& given, std::int64_t first_row = 0);

}  // namespace belfry
