#include <array>

#include <fmt/format.h>

#include <belfry/frontends/nn/layer_support_internal.h>
#include <belfry/frontends/nn/nets/nets.h>

namespace belfry::nn {

namespace {

Value padded(Value x, std::int64_t by) { return pad(x, {.before = {0, by, by, 0}, .after = {0, by, by, 0}}, {}); }

Value conv_bn(Value x, std::int64_t filters, std::int64_t kernel, std::int64_t stride, const std::string& name, const NetOptions& o) {
  x = conv2d(x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel == 3 ? "same" : "valid", .trainable = o.trainable, .name = name + "_conv"});
  return batch_norm(x, {.epsilon = 1.001e-5, .sync = o.sync, .trainable = o.trainable, .name = name + "_bn"});
}

Value block(Value x, std::int64_t filters, std::int64_t stride, bool first, const std::string& name, const NetOptions& o) {
  Value shortcut = first ? conv_bn(x, 4 * filters, 1, stride, name + "_0", o) : x;
  Value y = relu(conv_bn(x, filters, 1, stride, name + "_1", o), {});
  y = relu(conv_bn(y, filters, 3, 1, name + "_2", o), {});
  return relu(shortcut + conv_bn(y, 4 * filters, 1, 1, name + "_3", o), {});
}

Value resnet(const char* name, std::array<int, 4> blocks, Value image, const NetOptions& o, SourceLine at) {
  need_image(name, image, 32);
  SourceGuard line(*image.graph, at);
  Value x = relu(conv_bn(padded(image, 3), 64, 7, 2, "conv1", o), {});
  // Nothing is below 0 behind relu, so that zeros around it never win.
  x = max_pool2d(padded(x, 1), {.window = {3, 3}, .strides = {2, 2}});
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 1; i <= blocks[static_cast<std::size_t>(stage)]; ++i) x = block(x, 64 << stage, stage && i == 1 ? 2 : 1, i == 1, fmt::format("conv{}_block{}", stage + 2, i), o);
  if (!o.include_top) return x;
  return dense(global_avg_pool2d(x), {.units = o.classes, .trainable = o.trainable, .name = "predictions"});
}

}  // namespace

Value resnet50(Value image, const NetOptions& o, SourceLine at) { return resnet("resnet50", {3, 4, 6, 3}, image, o, at); }
Value resnet101(Value image, const NetOptions& o, SourceLine at) { return resnet("resnet101", {3, 4, 23, 3}, image, o, at); }

}  // namespace belfry::nn
