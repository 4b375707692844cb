// Kernels for ops on f16 and bf16 made of kernels of f32: inputs are widened into scratch, results rounded once.
#pragma once

#include <belfry/executor/kernel.h>

namespace belfry {

/// Ends the name of a kernel that computes halves in f32.
inline constexpr const char* kInF32 = "_in_f32";

/// Adds the kernels, which are asked for halves only where they say that they take them; behind all of them each a second time, for halves
/// by way of f32. `cast` is the device's kernel of that op.
void add_with_halves(KernelTable& table, const std::vector<Kernel>& kernels, const Kernel& cast);

}  // namespace belfry
