// Nets that are one convolution behind the other.
#include <fmt/format.h>

#include <belfry/frontends/nn/layer_support_internal.h>
#include <belfry/frontends/nn/nets/nets.h>

namespace belfry::nn {

Value vgg16(Value image, const NetOptions& o, SourceLine at) {
  need_image("vgg16", image, 32);
  SourceGuard line(*image.graph, at);
  Value x = image;
  struct {
    int convolutions;
    std::int64_t filters;
  } constexpr kBlocks[] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  int number = 1;
  for (auto [convolutions, filters] : kBlocks) {
    for (int i = 1; i <= convolutions; ++i)
      x = conv2d(x, {.filters = filters, .kernel = 3, .padding = "same", .activation = Activation::relu, .trainable = o.trainable, .name = fmt::format("block{}_conv{}", number, i)});
    x = max_pool2d(x, {.window = {2, 2}});
    ++number;
  }
  if (!o.include_top) return x;
  x = flatten(x, {});
  for (const char* name : {"fc1", "fc2"}) x = dense(x, {.units = 4096, .activation = Activation::relu, .trainable = o.trainable, .name = name});
  return dense(x, {.units = o.classes, .trainable = o.trainable, .name = "predictions"});
}

Value alexnet(Value image, const NetOptions& o, SourceLine at) {
  need_image("alexnet", image, 67);
  SourceGuard line(*image.graph, at);
  auto conv = [&](Value x, std::int64_t filters, std::int64_t kernel, std::int64_t stride, std::int64_t groups, double bias, const char* name) {
    return conv2d(x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = stride == 1 ? "same" : "valid", .groups = groups, .activation = Activation::relu,
                      .kernel_init = {"normal", 0.01}, .bias_init = constant_init(bias), .trainable = o.trainable, .name = name});
  };
  auto normal = [](Value x) { return local_response_norm(x, {.depth_radius = 2, .bias = 2, .alpha = 1e-4, .beta = 0.75}, {}); };
  auto pooled = [](Value x) { return max_pool2d(x, {.window = {3, 3}, .strides = {2, 2}}); };
  Value x = pooled(normal(conv(image, 96, 11, 4, 1, 0, "conv1")));
  x = pooled(normal(conv(x, 256, 5, 1, 2, 1, "conv2")));
  x = conv(x, 384, 3, 1, 1, 0, "conv3");
  x = conv(x, 384, 3, 1, 2, 1, "conv4");
  x = pooled(conv(x, 256, 3, 1, 2, 1, "conv5"));
  if (!o.include_top) return x;
  x = flatten(x, {});
  for (const char* name : {"fc6", "fc7"}) {
    x = dense(x, {.units = 4096, .activation = Activation::relu, .kernel_init = {"normal", 0.01}, .bias_init = constant_init(1), .trainable = o.trainable, .name = name});
    if (o.trainable) x = dropout(x, {.rate = 0.5});
  }
  return dense(x, {.units = o.classes, .kernel_init = {"normal", 0.01}, .trainable = o.trainable, .name = "fc8"});
}

Value cifar10(Value image, SourceLine at) {
  need_image("cifar10", image, 24);
  SourceGuard line(*image.graph, at);
  auto conv = [](Value x, double bias, const char* name) {
    return conv2d(x, {.filters = 64, .kernel = 5, .padding = "same", .activation = Activation::relu, .kernel_init = truncated_normal(0.05), .bias_init = constant_init(bias), .name = name});
  };
  auto hidden = [](Value x, std::int64_t units, const char* name) {
    return dense(x, {.units = units, .activation = Activation::relu, .kernel_init = truncated_normal(0.04), .bias_init = constant_init(0.1), .name = name});
  };
  auto normal = [](Value x) { return local_response_norm(x, {.depth_radius = 4, .bias = 1, .alpha = 0.001 / 9, .beta = 0.75}, {}); };
  auto pooled = [](Value x) { return max_pool2d(x, {.window = {3, 3}, .strides = {2, 2}, .padding = "same"}); };
  Value x = normal(pooled(conv(image, 0, "conv1")));
  x = pooled(normal(conv(x, 0.1, "conv2")));
  x = hidden(hidden(flatten(x, {}), 384, "local3"), 192, "local4");
  return dense(x, {.units = 10, .kernel_init = truncated_normal(1 / 192.0), .name = "softmax_linear"});
}

}  // namespace belfry::nn
