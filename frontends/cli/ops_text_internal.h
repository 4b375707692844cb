// The ops of a library as text and as JSON: signatures, attributes, and where each has kernels.
#pragma once

#include <string>

#include <belfry/executor/program.h>
#include <belfry/graph/op_def.h>

namespace belfry {

/// A line per op, by name: "matmul(a, b) -> y  transpose_a=false …  cpu gpu".
std::string ops_text(const OpSet& ops, const KernelTables& kernels);
/// All that one op says of itself: inputs, outputs, attributes with defaults and ranges, gradient, precision, kernels per kind of device.
std::string op_text(const OpDef& op, const KernelTables& kernels);
/// The same for machines: {"op", "inputs", "outputs", "attributes": {NAME: {"kind", "default", "choices", "range"}}, "differentiable", "kernels": {KIND: names}, "fused_in"}.
std::string op_json(const OpDef& op, const KernelTables& kernels);
/// A list of these, by name, and a newline.
std::string ops_json(const OpSet& ops, const KernelTables& kernels);

}  // namespace belfry
