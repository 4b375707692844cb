// Layers one behind the other, as one layer.
#pragma once

#include <functional>
#include <vector>

#include <belfry/frontends/nn/layers.h>

namespace belfry::nn {

/// What makes a Value of a Value: a layer object, a function, a lambda.
using Layer = std::function<Value(Value)>;

class Sequential {
 public:
  explicit Sequential(std::vector<Layer> layers) : layers_(std::move(layers)) {}
  /// The same layers, with the same variables, on every call.
  Value operator()(Value x) {
    for (Layer& layer : layers_) x = layer(x);
    return x;
  }

 private:
  std::vector<Layer> layers_;
};

/// Layers without variables, for lists.
inline Layer max_pool2d(const belfry::MaxPool2dOptions& options) {
  return [options](Value x) { return belfry::max_pool2d(x, options, {}); };
}
inline Layer flatten() {
  return [](Value x) { return belfry::flatten(x, {}); };
}

}  // namespace belfry::nn
