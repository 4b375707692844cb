// One node on host tensors, by its reference.
#pragma once

#include <vector>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Outputs with the given local types; an input that is left out is a null pointer.
std::vector<HostTensor> evaluate(const OpDef& op, const Attributes& attributes, const std::vector<const HostTensor*>& inputs,
                                 const std::vector<TensorType>& output_types, const std::vector<LocalType>& local, const Share& share);

}  // namespace belfry
