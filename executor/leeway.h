// What may be left to a kernel besides repeating its bits and multiplying f32 as f32.
#pragma once

#include <string>

#include <belfry/graph/structural.h>

namespace belfry {

struct Leeway {
  bool tf32 = false;              ///< f32 may be rounded to TF32 before it is multiplied
  bool nondeterministic = false;  ///< sums may be taken in another order each time
  bool covers(const Leeway& other) const { return (tf32 || !other.tf32) && (nondeterministic || !other.nondeterministic); }
};

/// How the kernel is called that takes it: "cudnn_conv2d_tf32_nondeterministic".
inline std::string with_leeway(std::string kernel, const Leeway& leeway) { return kernel + (leeway.tf32 ? "_tf32" : "") + (leeway.nondeterministic ? kNondeterministic : ""); }

}  // namespace belfry
