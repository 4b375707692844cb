// Where the elements of a slice lie on one share: what reference and kernel of slice and of its gradient share.
#pragma once

#include <string>

#include <belfry/graph/contexts.h>

namespace belfry {

/// Element `index` of the box is element part + Σ index·part_step of the smaller tensor and whole + Σ index·whole_step of the larger.
struct Box {
  Extents counts, part_step, whole_step;
  std::int64_t part = 0, whole = 0;
};

/// `wide`: the larger tensor's type with its symbols; extents are local. UserError where the slice reaches behind the end.
Box box_of(const Attributes& attributes, const Shape& wide, const Extents& whole, const Extents& part, const Share& share);

/// The same for a node: the gradient has the smaller tensor for its input and the larger for its output, of that type.
Box box_of(const Attributes& attributes, const LocalType& input, const LocalType& output, const TensorType& output_type, const Share& share, bool gradient);
/// What that UserError says; empty if the slice lies inside. Kernels leave it to the reference, whose error names the axis.
std::string box_objection(const Attributes& attributes, const LocalType& input, const LocalType& output, const TensorType& output_type, const Share& share, bool gradient);

/// Whether towers have their rows of this axis: all of them are taken, or every n-th of n per row.
bool keeps_rows(const Dim& wide, const Dim& size, std::int64_t stride);

/// The stride of an axis; 1 where none are given.
inline std::int64_t stride_of(const Attributes& a, std::size_t axis) {
  const Integers& strides = a.integers("strides");
  return strides.empty() ? 1 : strides[axis];
}

}  // namespace belfry
