// Layers: ops with variables of their own. A layer object that is called twice shares its variables.
#pragma once

#include <belfry/frontends/builder/builder.h>

namespace belfry {

enum class Activation { none, relu, relu6, tanh, sigmoid, softmax, softplus, elu, gelu, silu };
Value activate(Value x, Activation activation);

namespace nn {

/// How a variable begins: a kind as VariableOptions::init has it, and the number that some kinds need.
struct Init {
  Init(const char* kind, double value = 0) : kind(kind), value(value) {}
  std::string kind;
  double value;
};
inline Init truncated_normal(double deviation) { return {"truncated_normal", deviation}; }
inline Init constant_init(double value) { return {"constant", value}; }

/// Along height and width; one number stands for both.
struct Size2d {
  Size2d(std::int64_t both) : height(both), width(both) {}
  Size2d(std::int64_t height, std::int64_t width) : height(height), width(width) {}
  std::int64_t height, width;
};

struct DenseOptions {
  std::int64_t units = 0;
  Activation activation = Activation::none;
  bool bias = true;
  Init kernel_init = "glorot_uniform", bias_init = "zeros";
  bool trainable = true;
  std::string name = "dense";
};

struct Conv2dOptions {
  std::int64_t filters = 0;
  Size2d kernel = 3;
  Size2d stride = 1;
  std::string padding = "valid";  ///< "valid" or "same", as TensorFlow counts
  Activation activation = Activation::none;
  bool bias = true;
  Init kernel_init = "glorot_uniform", bias_init = "zeros";
  bool trainable = true;
  std::string name = "conv2d";
};

struct BatchNormOptions {
  double momentum = 0.99;         ///< of the running statistics
  double epsilon = 1e-3;
  bool sync = false;              ///< statistics of the whole batch instead of each tower's
  std::string name = "batch_norm";
};

struct DropoutOptions {
  double rate = 0.5;
  std::string name = "dropout";
};

struct EmbeddingOptions {
  std::int64_t rows = 0, size = 0;
  std::string init = "uniform";
  double init_value = 0.05;
  std::string name = "embedding";
};

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

/// y = activation(conv(x, kernel) + bias); x: (batch, height, width, in), kernel: (kernel, kernel, in, filters).
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
/// Adds gamma, beta, the running statistics and their updates (the mean over the towers).
Value batch_norm(Value x, const BatchNormOptions& options = {}, SourceLine at = SourceLine::here());
/// Keyed by the graph's seed and step.
Value dropout(Value x, const DropoutOptions& options = {}, SourceLine at = SourceLine::here());
/// Rows of a table by index; ids: (…), y: (…, size).
Value embedding(Value ids, const EmbeddingOptions& options, SourceLine at = SourceLine::here());

}  // namespace nn
}  // namespace belfry
