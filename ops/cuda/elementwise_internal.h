// Elementwise kernels: a tree of scalar expressions over inputs that lie by strides, one text per form.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/generated_internal.h>

namespace belfry {

/// Where an operand's elements lie along the axes of the output, in elements.
struct Lying {
  DType dtype = f32;
  Extents strides;
  std::int64_t first = 0;
};
/// Stretched to the shape: stride 0 where it has size 1 or no axis.
Lying stretched(const LocalType& operand, const Extents& to);

/// T in the text is `type` (f32 for halves), or that of the first operand where `type` is bool.
struct ScalarStep {
  DType type = f32;
  std::string text;                                       ///< C++: "a + b"
  std::vector<std::pair<std::string, std::size_t>> operands;  ///< names, and which they are: inputs, then earlier steps
  std::vector<std::pair<std::string, double>> constants = {}; ///< of type T
  ScalarResult result = ScalarResult::any;
};

/// The last step is the output. A tree of one input and no steps copies.
struct ScalarTree {
  std::vector<Lying> inputs;
  std::vector<ScalarStep> steps;
  Extents shape;                                          ///< of what is computed
  Lying output = {};                                      ///< no strides: dense
};
Generated elementwise(const ScalarTree& tree);

/// The node's own expression (`OpDef::scalar`) over all its inputs.
ScalarTree tree_of(const KernelRequest& r);

/// Of a group's members but `core`, where there is one that is none: each a step over what they read from outside and the steps before. Where others read the core, its first output is input 0.
ScalarTree tree_of_members(const KernelRequest& r, const Node* core = nullptr);
/// Whether `table` has that expression for each of these members.
Support has_expressions(const KernelRequest& r, const KernelTable& table, const Node* core = nullptr);
/// The device function `apply(inputs…, args)` of one element, and what it needs. A text with several has names that end in `of` each. With `widened` halves are given to it, and come of it, as f32.
std::string element_text(const ScalarTree& tree, Generated& g, const std::string& of = "", bool widened = false);

/// "nvrtc_elementwise" for ops with an expression, of the dtypes of input `i`.
Kernel elementwise_kernel(const GpuCodeRef& code, const std::string& op, std::vector<DType> dtypes, std::size_t i = 0);

/// The same for groups of such nodes, as one expression: of members that `table` has that kernel for.
Kernel elementwise_tree(const GpuCodeRef& code, const std::string& kind, const std::shared_ptr<const KernelTable>& table);

/// Accepts where input `i` has one of the dtypes and the node writes something.
Support takes_on_gpu(const KernelRequest& r, const std::vector<DType>& dtypes, std::size_t i = 0);

}  // namespace belfry
