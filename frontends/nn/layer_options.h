// What layers are told: sizes, variants, how their variables begin.
#pragma once

#include <cstdint>
#include <string>

#include <belfry/graph/attributes.h>

namespace belfry {

enum class Activation { none, relu, relu6, tanh, sigmoid, softmax, softplus, elu, gelu, silu };

namespace nn {

/// How a variable begins: a kind as VariableOptions::init has it, and the number that some kinds need.
struct Init {
  Init(const char* name, double number = 0) : kind(name), value(number) {}
  std::string kind;
  double value;
};
inline Init truncated_normal(double deviation) { return {"truncated_normal", deviation}; }
inline Init constant_init(double value) { return {"constant", value}; }

/// Along height and width; one number stands for both.
struct Size2d {
  Size2d(std::int64_t both) : height(both), width(both) {}
  Size2d(std::int64_t h, std::int64_t w) : height(h), width(w) {}
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
  Integers pads = {};             ///< or beside "valid": zeros above, below, left and right
  std::int64_t groups = 1;        ///< equal shares of the filters, each of which reads its share of the channels
  Size2d dilation = 1;
  Activation activation = Activation::none;
  bool bias = true;
  Init kernel_init = "glorot_uniform", bias_init = "zeros";
  bool trainable = true;
  std::string name = "conv2d";
};

struct DepthwiseConv2dOptions {
  Size2d kernel = 3;
  Size2d stride = 1;
  std::string padding = "valid";
  Integers pads = {};
  std::int64_t multiplier = 1;    ///< filters per channel
  Activation activation = Activation::none;
  bool bias = true;
  Init kernel_init = "glorot_uniform", bias_init = "zeros";
  bool trainable = true;
  std::string name = "depthwise_conv2d";
};

struct BatchNormOptions {
  double momentum = 0.99;         ///< of the running statistics
  double epsilon = 1e-3;
  bool scale = true, center = true;  ///< whether there are a gamma and a beta
  bool sync = false;              ///< statistics of the whole batch instead of each tower's
  bool unbiased = false;          ///< what the running variance averages: n/(n − 1) times the batch's, as TensorFlow's fused operator and Keras 2 do; else as Keras 3
  bool trainable = true;          ///< false, as in Keras: nothing is trained, and the running statistics are read in training too
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

}  // namespace nn
}  // namespace belfry
