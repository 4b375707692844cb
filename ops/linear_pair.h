// Ops that are linear in one picture: such an op and its gradient are each other's gradients.
#pragma once

#include <string>
#include <vector>

#include <belfry/ops/emit.h>

namespace belfry {

/// y = NAME(x), and dx = NAME_gradient(dy, x), of whose x only the shape is read. Both work row by row.
struct LinearPair {
  std::string name;
  std::vector<AttributeDef> attributes;
  TensorType (*output)(InferContext& c, int x);  ///< the type of y for input x, after all checks
  ReferenceRule forward, backward;
  double (*flops)(const LocalType& y, const Attributes& a);
};
std::vector<OpDef> linear_pair(const LinearPair& pair);

}  // namespace belfry
