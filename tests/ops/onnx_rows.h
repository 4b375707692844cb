// ONNX's operators that have a counterpart here, by name, and the builders that stand for them.
#pragma once

#include <string>
#include <vector>

#include "onnx_case.h"

namespace belfry::test::onnx {

using Outputs = std::vector<Value>;
using Builds = Outputs (*)(Case&);

/// The builder of an operator, or null.
Builds builder_of(const std::string& op);

/// 0, 1, … n − 1.
Integers counted(int n);
/// (n, c, …) to (n, …, c), and back.
Value channels_last(Value x);
Value channels_first(Value x);

// Windows over pictures.
Outputs conv(Case& c);
Outputs conv_transpose(Case& c);
Outputs max_pool(Case& c);
Outputs average_pool(Case& c);

// Pixels of a picture in other places.
Outputs pad_or_crop(Case& c);
Outputs resize_picture(Case& c);
Outputs depth_to_space(Case& c);

// Norms.
Outputs batch_normalization(Case& c);
Outputs instance_normalization(Case& c);
Outputs group_normalization(Case& c);
Outputs layer_normalization(Case& c);
Outputs local_response_normalization(Case& c);

// Losses and updates.
Outputs nll_loss(Case& c);
Outputs cross_entropy_loss(Case& c);
Outputs momentum_update(Case& c);
Outputs adam_update(Case& c);
Outputs adagrad_update(Case& c);

}  // namespace belfry::test::onnx
