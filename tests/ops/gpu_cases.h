// Cases of ops at the sizes that generated kernels have forms for: packs and what is left of them, many blocks, merged axes.
#pragma once

#include "op_case.h"

namespace belfry::test {

/// Beside the cases of the op's room.
std::vector<OpCase> gpu_cases(const std::string& op);

}  // namespace belfry::test
