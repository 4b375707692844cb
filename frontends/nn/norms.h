// Layers that normalise inside each example.
#pragma once

#include <belfry/frontends/builder/builder.h>

namespace belfry::nn {

struct LayerNormOptions {
  int axis = -1;                     ///< the moments are taken over this axis and those behind it
  double epsilon = 1e-3;
  bool scale = true, center = true;  ///< whether there are a gamma and a beta
  bool trainable = true;
  std::string name = "layer_norm";
};

struct RmsNormOptions {
  int axis = -1;
  double epsilon = 1e-6;
  bool trainable = true;
  std::string name = "rms_norm";
};

struct GroupNormOptions {
  std::int64_t groups = 32;
  double epsilon = 1e-3;
  bool scale = true, center = true;
  bool trainable = true;
  std::string name = "group_norm";
};

/// Adds gamma and beta, of the shape of the axes that are normalised over.
Value layer_norm(Value x, const LayerNormOptions& options = {}, SourceLine at = SourceLine::here());
/// Adds gamma; nothing is subtracted.
Value rms_norm(Value x, const RmsNormOptions& options = {}, SourceLine at = SourceLine::here());
/// x: (batch, …, channels). Adds gamma and beta (channels).
Value group_norm(Value x, const GroupNormOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace belfry::nn
