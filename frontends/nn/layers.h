// Layers: ops with variables of their own. A layer object that is called twice shares its variables.
#pragma once

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/nn/layer_options.h>

namespace belfry {

Value activate(Value x, Activation activation);

namespace nn {

/// y = activation(x·kernel + bias); x: (…, in), kernel: (in, units).
class Dense {
 public:
  explicit Dense(DenseOptions options) : options_(std::move(options)) {}
  Value operator()(Value x, SourceLine at = SourceLine::here());

 private:
  DenseOptions options_;
  std::string scope_;
  Value kernel_, bias_;
};

/// y = activation(conv(x, kernel) + bias); x: (batch, height, width, in), kernel: (height, width, in / groups, filters).
class Conv2d {
 public:
  explicit Conv2d(Conv2dOptions options) : options_(std::move(options)) {}
  Value operator()(Value x, SourceLine at = SourceLine::here());

 private:
  Conv2dOptions options_;
  std::string scope_;
  Value kernel_, bias_;
};

Value dense(Value x, const DenseOptions& options, SourceLine at = SourceLine::here());
Value conv2d(Value x, const Conv2dOptions& options, SourceLine at = SourceLine::here());
/// Each channel by its own filters: depthwise_kernel (height, width, in, multiplier), bias (in · multiplier).
Value depthwise_conv2d(Value x, const DepthwiseConv2dOptions& options, SourceLine at = SourceLine::here());
/// x: (…, channels). Adds gamma, beta, moving_mean and moving_variance, and the updates of the last two:
/// moving·momentum + batch·(1 − momentum), of the mean over the towers.
Value batch_norm(Value x, const BatchNormOptions& options = {}, SourceLine at = SourceLine::here());
/// Keyed by the graph's seed and step.
Value dropout(Value x, const DropoutOptions& options = {}, SourceLine at = SourceLine::here());
/// Rows of a table by index; ids: (…), y: (…, size).
Value embedding(Value ids, const EmbeddingOptions& options, SourceLine at = SourceLine::here());

}  // namespace nn
}  // namespace belfry
