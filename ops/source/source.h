// Values that no node computes: feeds, state and constants.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// A feed of the given dtype and shape; its first symbolic axis are the rows of the batch.
OpDef input_def();
/// State that lives from step to step. `init` names how it begins (zeros, ones, constant, uniform, normal,
/// truncated_normal, glorot_uniform, he_normal, seed) and `init_value` its constant, limit or deviation. he_normal is a whole normal
/// distribution, as He et al. 2015 have it; Keras truncates its own.
OpDef variable_def();
/// A tensor that stands in the graph; a scalar takes the dtype of what it meets.
OpDef constant_def();

struct VariableOptions {
  DType dtype = f32;
  std::string init = "zeros";
  double init_value = 0;
  bool trainable = true;
};

Value input(Graph& graph, const std::string& name, DType dtype, Shape shape, SourceLine at = SourceLine::here());
Value variable(Graph& graph, const std::string& name, Shape shape, const VariableOptions& options = {}, SourceLine at = SourceLine::here());
Value constant(Graph& graph, HostTensor value, SourceLine at = SourceLine::here());
/// A scalar of the same dtype as `like`.
Value constant_like(Value like, double value, SourceLine at = SourceLine::here());

}  // namespace belfry
