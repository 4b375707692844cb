// What kernels of batch norm on GPUs ask of dtypes.
#pragma once

#include <belfry/executor/kernel.h>

namespace belfry {

/// Whether data, input 0 and `dy` and output 0, are of several dtypes, or parameters, statistics and their gradients not all of `parameters`.
inline bool mixed_dtypes(const KernelRequest& r, std::size_t dy, DType parameters) {
  auto other = [&](const std::vector<LocalType>& all, std::size_t i) { return all[i].elements() > 0 && all[i].dtype != (i == 0 || i == dy ? r.inputs[0].dtype : parameters); };
  bool out = false;
  for (std::size_t i = 0; i < r.inputs.size(); ++i) out = out || other(r.inputs, i);
  for (std::size_t i = 0; i < r.outputs.size(); ++i) out = out || other(r.outputs, i);
  return out;
}

}  // namespace belfry
