#include <algorithm>

#include <fmt/format.h>

#include <belfry/frontends/nn/layer_support_internal.h>
#include <belfry/frontends/nn/nets/nets.h>

namespace belfry::nn {

namespace {

/// The nearest multiple of 8, but never below nine tenths of v.
std::int64_t divisible(double v) {
  std::int64_t out = std::max<std::int64_t>(8, static_cast<std::int64_t>(v + 4) / 8 * 8);
  return static_cast<double>(out) < 0.9 * v ? out + 8 : out;
}

class MobileNetMaker {
 public:
  explicit MobileNetMaker(const MobileNetV2Options& options) : o_(options) {}

  Value conv(Value x, std::int64_t filters, std::int64_t kernel, std::int64_t stride, const std::string& name, const std::string& norm, bool relu) const {
    x = conv2d(x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = "same", .bias = false, .trainable = o_.trainable, .name = name});
    return normal(x, norm, relu);
  }

  Value normal(Value x, const std::string& name, bool relu) const {
    x = batch_norm(x, {.momentum = 0.999, .epsilon = 1e-3, .sync = o_.sync, .trainable = o_.trainable, .name = name});
    return relu ? relu6(x, {}) : x;
  }

  /// Expand, filter each channel, project; what came in is added where the shape stays.
  Value block(Value x, std::int64_t expansion, double filters, std::int64_t stride, int number) const {
    const std::string prefix = number ? fmt::format("block_{}_", number) : "expanded_conv_";
    const std::int64_t in = x.shape().back().factor, out = divisible(static_cast<double>(static_cast<std::int64_t>(filters * o_.alpha)));
    Value y = number ? conv(x, expansion * in, 1, 1, prefix + "expand", prefix + "expand_BN", true) : x;
    y = depthwise_conv2d(y, {.kernel = 3, .stride = stride, .padding = "same", .bias = false, .trainable = o_.trainable, .name = prefix + "depthwise"});
    y = normal(y, prefix + "depthwise_BN", true);
    y = conv(y, out, 1, 1, prefix + "project", prefix + "project_BN", false);
    return in == out && stride == 1 ? x + y : y;
  }

 private:
  const MobileNetV2Options& o_;
};

struct Stage {
  std::int64_t expansion;
  double filters;
  int blocks;
  std::int64_t stride;
};
constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

}  // namespace

Value mobilenet_v2(Value image, const MobileNetV2Options& o, SourceLine at) {
  need_image("mobilenet_v2", image, 32);
  if (!(o.alpha > 0)) throw UserError(fmt::format("[mobilenet_v2] alpha is {}; it must be positive", o.alpha));
  SourceGuard line(*image.graph, at);
  const MobileNetMaker make(o);
  Value x = make.conv(image, divisible(32 * o.alpha), 3, 2, "Conv1", "bn_Conv1", true);
  int number = 0;
  for (const Stage& s : kStages)
    for (int i = 0; i < s.blocks; ++i) x = make.block(x, s.expansion, s.filters, i ? 1 : s.stride, number++);
  x = make.conv(x, o.alpha > 1 ? divisible(1280 * o.alpha) : 1280, 1, 1, "Conv_1", "Conv_1_bn", true);
  if (!o.include_top) return x;
  return dense(global_avg_pool2d(x), {.units = o.classes, .trainable = o.trainable, .name = "predictions"});
}

}  // namespace belfry::nn
