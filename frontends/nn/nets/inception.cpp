// Nets whose blocks are branches side by side.
#include <fmt/format.h>

#include <belfry/frontends/nn/layer_support_internal.h>
#include <belfry/frontends/nn/nets/nets.h>

namespace belfry::nn {

namespace {

Value relu_named(Value x, const std::string& name) { return x.graph->add("relu", {x}, {}, x.graph->free_name(name)); }
Value concat_named(const std::vector<Value>& xs, const std::string& name) { return xs[0].graph->add("concat", xs, {{"axis", 3}}, xs[0].graph->free_name(name)); }

class InceptionMaker {
 public:
  explicit InceptionMaker(const NetOptions& options) : o_(options) {}

  /// Convolution without bias, batch normalisation without scale, relu.
  Value conv(Value x, std::int64_t filters, Size2d kernel, std::int64_t stride = 1, const char* padding = "same", const std::string& name = "") const {
    x = conv2d(x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = padding, .bias = false, .trainable = o_.trainable, .name = name.empty() ? "conv2d" : name});
    x = batch_norm(x, {.scale = false, .sync = o_.sync, .trainable = o_.trainable, .name = name.empty() ? "batch_normalization" : name + "_bn"});
    return relu_named(x, name.empty() ? "activation" : name + "_ac");
  }
  Value valid(Value x, std::int64_t filters, Size2d kernel, std::int64_t stride = 1) const { return conv(x, filters, kernel, stride, "valid"); }
  static Value halved(Value x) { return max_pool2d(x, {.window = {3, 3}, .strides = {2, 2}}, {}); }

  Value averaged(Value x, std::int64_t filters) const { return conv(avg_pool2d(x, {.window = {3, 3}, .strides = {1, 1}, .padding = "same"}), filters, 1); }
  /// 299 x 299 to 35 x 35 x 192.
  Value stem(Value image) const {
    Value x = conv(valid(valid(image, 32, 3, 2), 32, 3), 64, 3);
    return halved(valid(valid(halved(x), 80, 1), 192, 3));
  }

  Value block_5x5(Value x, std::int64_t pooled, const std::string& name) const {
    Value a = conv(x, 64, 1);
    Value b = conv(conv(x, 48, 1), 64, 5);
    Value c = conv(conv(conv(x, 64, 1), 96, 3), 96, 3);
    return concat_named({a, b, c, averaged(x, pooled)}, name);
  }
  Value block_7x7(Value x, std::int64_t width, const std::string& name) const {
    Value a = conv(x, 192, 1);
    Value b = conv(conv(conv(x, width, 1), width, {1, 7}), 192, {7, 1});
    Value c = conv(conv(x, width, 1), width, {7, 1});
    c = conv(conv(conv(c, width, {1, 7}), width, {7, 1}), 192, {1, 7});
    return concat_named({a, b, c, averaged(x, 192)}, name);
  }
  Value block_3x3(Value x, const std::string& name) const {
    auto forked = [&](Value y) { return concat({conv(y, 384, {1, 3}), conv(y, 384, {3, 1})}, 3, {}); };
    Value a = conv(x, 320, 1);
    Value b = forked(conv(x, 384, 1));
    Value c = forked(conv(conv(x, 448, 1), 384, 3));
    return concat_named({a, b, c, averaged(x, 192)}, name);
  }

  /// x + scale·(branches, brought to x's channels by a linear convolution with bias), then relu but for the last.
  Value residual(Value x, const std::vector<Value>& branches, double scale, const std::string& name, bool last = false) const {
    Value up = conv2d(concat(branches, 3, {}), {.filters = x.shape().back().factor, .kernel = 1, .padding = "same", .trainable = o_.trainable, .name = name + "_conv"});
    Value y = x + scale * up;
    return last ? y : relu_named(y, name + "_ac");
  }

  Value block35(Value x, int number) const {
    Value a = conv(x, 32, 1);
    Value b = conv(conv(x, 32, 1), 32, 3);
    Value c = conv(conv(conv(x, 32, 1), 48, 3), 64, 3);
    return residual(x, {a, b, c}, 0.17, fmt::format("block35_{}", number));
  }
  Value block17(Value x, int number) const {
    Value a = conv(x, 192, 1);
    Value b = conv(conv(conv(x, 128, 1), 160, {1, 7}), 192, {7, 1});
    return residual(x, {a, b}, 0.1, fmt::format("block17_{}", number));
  }
  Value block8(Value x, int number, bool last) const {
    Value a = conv(x, 192, 1);
    Value b = conv(conv(conv(x, 192, 1), 224, {1, 3}), 256, {3, 1});
    return residual(x, {a, b}, last ? 1.0 : 0.2, fmt::format("block8_{}", number), last);
  }

 private:
  const NetOptions& o_;
};

}  // namespace

Value inception_v3(Value image, const NetOptions& o, SourceLine at) {
  need_image("inception_v3", image, 75);
  SourceGuard line(*image.graph, at);
  const InceptionMaker m(o);
  Value x = m.stem(image);
  for (int i = 0; i < 3; ++i) x = m.block_5x5(x, i ? 64 : 32, fmt::format("mixed{}", i));  // 35 x 35 x 288
  x = concat_named({m.valid(x, 384, 3, 2), m.valid(m.conv(m.conv(x, 64, 1), 96, 3), 96, 3, 2), m.halved(x)}, "mixed3");
  constexpr std::int64_t kWidths[] = {128, 160, 160, 192};
  for (int i = 0; i < 4; ++i) x = m.block_7x7(x, kWidths[i], fmt::format("mixed{}", i + 4));  // 17 x 17 x 768
  {
    Value a = m.valid(m.conv(x, 192, 1), 320, 3, 2);
    Value b = m.valid(m.conv(m.conv(m.conv(x, 192, 1), 192, {1, 7}), 192, {7, 1}), 192, 3, 2);
    x = concat_named({a, b, m.halved(x)}, "mixed8");
  }
  for (int i = 9; i <= 10; ++i) x = m.block_3x3(x, fmt::format("mixed{}", i));  // 8 x 8 x 2048
  if (!o.include_top) return x;
  return dense(global_avg_pool2d(x), {.units = o.classes, .trainable = o.trainable, .name = "predictions"});
}

Value inception_resnet_v2(Value image, const NetOptions& o, SourceLine at) {
  need_image("inception_resnet_v2", image, 75);
  SourceGuard line(*image.graph, at);
  const InceptionMaker m(o);
  Value x = m.stem(image);
  {  // 35 x 35 x 320
    Value a = m.conv(x, 96, 1);
    Value b = m.conv(m.conv(x, 48, 1), 64, 5);
    Value c = m.conv(m.conv(m.conv(x, 64, 1), 96, 3), 96, 3);
    Value d = m.averaged(x, 64);
    x = concat_named({a, b, c, d}, "mixed_5b");
  }
  for (int i = 1; i <= 10; ++i) x = m.block35(x, i);
  {  // 17 x 17 x 1088
    Value a = m.valid(x, 384, 3, 2);
    Value b = m.valid(m.conv(m.conv(x, 256, 1), 256, 3), 384, 3, 2);
    x = concat_named({a, b, m.halved(x)}, "mixed_6a");
  }
  for (int i = 1; i <= 20; ++i) x = m.block17(x, i);
  {  // 8 x 8 x 2080
    Value a = m.valid(m.conv(x, 256, 1), 384, 3, 2);
    Value b = m.valid(m.conv(x, 256, 1), 288, 3, 2);
    Value c = m.valid(m.conv(m.conv(x, 256, 1), 288, 3), 320, 3, 2);
    x = concat_named({a, b, c, m.halved(x)}, "mixed_7a");
  }
  for (int i = 1; i <= 10; ++i) x = m.block8(x, i, i == 10);
  x = m.conv(x, 1536, 1, 1, "same", "conv_7b");
  if (!o.include_top) return x;
  return dense(global_avg_pool2d(x), {.units = o.classes, .trainable = o.trainable, .name = "predictions"});
}

}  // namespace belfry::nn
