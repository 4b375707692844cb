// Well-known nets: as functions of Values, to build upon, and whole by name with loss, metrics and optimizer.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <belfry/frontends/nn/layers.h>

namespace belfry {

namespace nn {

// All take pictures (batch, height, width, channels) and give logits (batch, classes), or without the top the last feature map. Layers
// and variables have the names that Keras gives them, so its weights load by name. With `trainable` false nothing is trained and batch
// normalisation reads its running statistics.

/// Sandler et al. 2018, as Keras has it: input x/127.5 − 1, at least 32 x 32. alpha: the width, 0.35 to 1.4.
struct MobileNetV2Options {
  double alpha = 1;
  bool include_top = true;
  std::int64_t classes = 1000;
  bool trainable = true;
  bool sync = false;  ///< batch statistics of all towers together
};
Value mobilenet_v2(Value image, const MobileNetV2Options& options = {}, SourceLine at = SourceLine::here());

/// What nets without a width have to choose.
struct NetOptions {
  bool include_top = true;
  std::int64_t classes = 1000;
  bool trainable = true;
  bool sync = false;
};
/// Szegedy et al. 2016: at least 75 x 75, 299 x 299 as trained.
Value inception_resnet_v2(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
/// Szegedy et al. 2015 (arXiv:1512.00567): at least 75 x 75, 299 x 299 as trained.
Value inception_v3(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
/// He et al. 2015, with biases and the stride in the first convolution of a block: at least 32 x 32.
Value resnet50(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
Value resnet101(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
/// Simonyan & Zisserman 2014: with the top 224 x 224.
Value vgg16(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
/// Krizhevsky et al. 2012 on one device: two groups in the second, fourth and fifth convolution; with the top 227 x 227.
Value alexnet(Value image, const NetOptions& options = {}, SourceLine at = SourceLine::here());
/// The net of TensorFlow's CIFAR-10 tutorial: 24 x 24 x 3, local response normalisation after each pooling.
Value cifar10(Value image, SourceLine at = SourceLine::here());

/// A language model: blocks of causal attention and a gelu layer four times as wide, each behind a layer norm and added to its input (Radford
/// et al. 2019). tokens: i32 (batch, length); logits (batch, length, vocabulary).
struct TransformerOptions {
  std::int64_t vocabulary = 256, length = 64, width = 128, heads = 4, blocks = 2;
  double dropout = 0;
  bool packed = false;  ///< queries, keys and values of a block by one product
};
Value transformer(Value tokens, const TransformerOptions& options = {}, SourceLine at = SourceLine::here());

}  // namespace nn

/// Numbers that a net can be given by name: "classes", "image", "alpha".
using Settings = std::map<std::string, double>;

struct NetDef {
  std::string name, help;
  Settings settings;  ///< with their defaults
  std::function<Graph(std::shared_ptr<const OpSet> ops, const Settings& settings)> make;

  /// UserError for a setting that the net has not, or a number that does not suit it.
  Graph build(std::shared_ptr<const OpSet> ops, const Settings& given = {}) const;
};

/// Feeds: "image" f32 (batch, height, width, channels) and "label" i32 (batch), or "tokens" and "targets" i32 (batch, length). Metric "accuracy".
const std::vector<NetDef>& standard_nets();
/// UserError with the known names.
const NetDef& net_named(const std::string& name);

}  // namespace belfry
