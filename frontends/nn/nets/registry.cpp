#include <belfry/frontends/nn/nets/nets.h>

#include <cmath>

#include <fmt/format.h>

namespace belfry {

namespace {

/// Mean sparse cross entropy, accuracy, and logits as output.
Graph classifier(Builder b, Value logits, Value label, const Optimizer& optimizer) {
  Value loss = identity(mean(sparse_softmax_cross_entropy(logits, label)), "loss");
  b.output(logits);
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.minimize(loss, optimizer);
  return std::move(b).build();
}

struct Images {
  Images(const char* name, std::shared_ptr<const OpSet> ops, std::int64_t height = 28, std::int64_t channels = 1)
      : b(name, std::move(ops)), image(b.input("image", f32, {kBatch, height, height, channels})), label(b.input("label", i32, {kBatch})) {}
  Builder b;
  Value image, label;
};

std::int64_t whole(const Settings& s, const char* name) { return static_cast<std::int64_t>(s.at(name)); }

bool flag(const Settings& s, const char* net, const char* name) {
  if (s.at(name) != 0 && s.at(name) != 1) throw UserError(fmt::format("the net '{}': {} = {} is neither 0 nor 1", net, name, s.at(name)));
  return s.at(name) != 0;
}

Graph mnist_cnn(std::shared_ptr<const OpSet> ops, const Settings&) {
  Images in("mnist_cnn", std::move(ops));
  Value x = nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu});
  x = flatten(max_pool2d(x, {.window = {2, 2}}));
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Adam{});
}

Graph mnist_cnn_wide(std::shared_ptr<const OpSet> ops, const Settings&) {
  Images in("mnist_cnn_wide", std::move(ops));
  Value x = nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu});
  x = nn::conv2d(x, {.filters = 64, .kernel = 3, .activation = Activation::relu});
  x = nn::dense(flatten(max_pool2d(x, {.window = {2, 2}})), {.units = 128, .activation = Activation::relu});
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Adam{});
}

/// Two softmax heads on one body: the label's remainder and quotient by 5.
Graph mnist_two_heads(std::shared_ptr<const OpSet> ops, const Settings&) {
  Images in("mnist_two_heads", std::move(ops));
  Value quotient = in.label / 5, remainder = in.label - 5 * quotient;
  Value x = max_pool2d(nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu}), {.window = {2, 2}});
  x = max_pool2d(nn::conv2d(x, {.filters = 64, .kernel = 3, .activation = Activation::relu}), {.window = {2, 2}});
  x = nn::dense(flatten(x), {.units = 64, .activation = Activation::relu});
  Value first = nn::dense(x, {.units = 5, .name = "output1"}), second = nn::dense(x, {.units = 2, .name = "output2"});
  Value right_1 = equal(argmax(first), remainder), right_2 = equal(argmax(second), quotient);
  in.b.output(first);
  in.b.output(second);
  in.b.metric("accuracy_1", mean(right_1));
  in.b.metric("accuracy_2", mean(right_2));
  in.b.metric("accuracy", mean(logical_and(right_1, right_2)));
  in.b.minimize(identity(mean(sparse_softmax_cross_entropy(first, remainder)) + mean(sparse_softmax_cross_entropy(second, quotient)), "loss"), Adam{});
  return std::move(in.b).build();
}

Graph mlp(std::shared_ptr<const OpSet> ops, const Settings&) {
  Images in("mlp", std::move(ops));
  Value x = nn::dense(flatten(in.image), {.units = 512, .activation = Activation::relu});
  x = nn::dense(x, {.units = 512, .activation = Activation::relu});
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Momentum{.learning_rate = 0.01, .momentum = 0.9});
}

/// TensorFlow's tutorial: weight decay on two layers, a rate in stairs, and moving averages of all weights.
Graph cifar10(std::shared_ptr<const OpSet> ops, const Settings& s) {
  Images in("cifar10", std::move(ops), 24, 3);
  Value logits = nn::cifar10(in.image);
  Value entropy = mean(sparse_softmax_cross_entropy(logits, in.label));
  in.b.output(logits);
  in.b.metric("accuracy", mean(equal(argmax(logits), in.label)));
  in.b.metric("cross_entropy", entropy);
  Value rate = exponential_decay(in.b.step(), {.rate = s.at("rate"), .steps = whole(s, "decay_steps"), .factor = 0.1, .staircase = true});
  in.b.minimize(identity(entropy + in.b.l2_penalty("local3/kernel, local4/kernel", 0.004), "loss"), Sgd{.learning_rate = rate}, {.average_decay = 0.9999, .average_by_step = true});
  return std::move(in.b).build();
}

template <class Net>
Graph of_pictures(const char* name, std::shared_ptr<const OpSet> ops, const Settings& s, const Net& net) {
  Images in(name, std::move(ops), whole(s, "image"), 3);
  return classifier(std::move(in.b), net(in.image), in.label, Adam{.learning_rate = s.at("rate")});
}

Graph mobilenet_v2(std::shared_ptr<const OpSet> ops, const Settings& s) {
  return of_pictures("mobilenet_v2", std::move(ops), s, [&](Value x) { return nn::mobilenet_v2(x, {.alpha = s.at("alpha"), .classes = whole(s, "classes")}); });
}

template <Value (*kNet)(Value, const nn::NetOptions&, SourceLine)>
auto pictures(const char* name) {
  return [name](std::shared_ptr<const OpSet> ops, const Settings& s) {
    return of_pictures(name, std::move(ops), s, [&](Value x) { return kNet(x, {.classes = whole(s, "classes")}, {}); });
  };
}

/// Text by bytes: the next one at every place.
Graph transformer(std::shared_ptr<const OpSet> ops, const Settings& s) {
  Builder b("transformer", std::move(ops));
  const std::int64_t length = whole(s, "length");
  Value tokens = b.input("tokens", i32, {kBatch, length}), targets = b.input("targets", i32, {kBatch, length});
  Value logits = nn::transformer(tokens, {.vocabulary = whole(s, "vocabulary"), .length = length, .width = whole(s, "width"), .heads = whole(s, "heads"), .blocks = whole(s, "blocks"), .dropout = s.at("dropout"), .packed = flag(s, "transformer", "packed")});
  return classifier(std::move(b), logits, targets, AdamW{.learning_rate = s.at("rate"), .weight_decay = 0.01});
}

Settings picture_settings(std::int64_t image, double rate) { return {{"image", static_cast<double>(image)}, {"classes", 1000}, {"rate", rate}}; }

Settings with(Settings s, const char* name, double value) {
  s.emplace(name, value);
  return s;
}

}  // namespace

Graph NetDef::build(std::shared_ptr<const OpSet> ops, const Settings& given) const {
  Settings all = settings;
  std::vector<std::string> names;
  for (const auto& [key, ignored] : settings) names.push_back(key);
  for (const auto& [key, value] : given) {
    auto at = all.find(key);
    if (at == all.end())
      throw UserError(names.empty() ? fmt::format("the net '{}' has no settings, so no '{}'", name, key) : fmt::format("the net '{}' has no setting '{}'; it has {}{}", name, key, fmt::join(names, ", "), did_you_mean(key, names)));
    const bool is_whole = at->second >= 2;  // sizes; rates and widths are fractions
    if (!(value >= 0) || value > 1e9 || (is_whole && (value < 1 || value != std::floor(value)))) throw UserError(fmt::format("the net '{}': {} = {} is no {}", name, key, value, is_whole ? "whole number from 1 on" : "number from 0 on"));
    at->second = value;
  }
  return make(std::move(ops), all);
}

const std::vector<NetDef>& standard_nets() {
  static const std::vector<NetDef> nets = {
      {"mnist_cnn", "Conv 32, pool, Dense 10; Adam: 54,410 parameters", {}, mnist_cnn},
      {"mnist_cnn_wide", "Conv 32, Conv 64, pool, Dense 128, Dense 10; Adam", {}, mnist_cnn_wide},
      {"mnist_two_heads", "two Conv and pool, Dense 64, heads of 5 and 2; Adam: 121,735 parameters", {}, mnist_two_heads},
      {"mlp", "784-512-512-10; momentum", {}, mlp},
      {"cifar10", "TensorFlow's CIFAR-10 tutorial, 24 x 24: LRN, weight decay, averages; SGD in stairs: 1,068,298 parameters", {{"decay_steps", 136718}, {"rate", 0.1}}, cifar10},
      {"mobilenet_v2", "MobileNetV2 with the width alpha; Adam: 3,538,984 parameters", with(picture_settings(224, 1e-3), "alpha", 1), mobilenet_v2},
      {"inception_resnet_v2", "InceptionResNetV2; Adam: 55,873,736 parameters", picture_settings(299, 1e-3), pictures<nn::inception_resnet_v2>("inception_resnet_v2")},
      {"inception_v3", "InceptionV3; Adam: 23,851,784 parameters", picture_settings(299, 1e-3), pictures<nn::inception_v3>("inception_v3")},
      {"resnet50", "ResNet-50; Adam: 25,636,712 parameters", picture_settings(224, 1e-3), pictures<nn::resnet50>("resnet50")},
      {"resnet101", "ResNet-101; Adam: 44,707,176 parameters", picture_settings(224, 1e-3), pictures<nn::resnet101>("resnet101")},
      {"vgg16", "VGG-16; Adam: 138,357,544 parameters", picture_settings(224, 1e-4), pictures<nn::vgg16>("vgg16")},
      {"alexnet", "AlexNet in two groups; Adam: 60,965,224 parameters", picture_settings(227, 1e-4), pictures<nn::alexnet>("alexnet")},
      {"transformer", "a causal language model over bytes; AdamW", {{"vocabulary", 256}, {"length", 64}, {"width", 128}, {"heads", 4}, {"blocks", 2}, {"dropout", 0}, {"packed", 0}, {"rate", 1e-3}}, transformer}};
  return nets;
}

const NetDef& net_named(const std::string& name) {
  std::vector<std::string> names;
  for (const NetDef& n : standard_nets()) {
    if (n.name == name) return n;
    names.push_back(n.name);
  }
  throw UserError(fmt::format("there is no net '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

}  // namespace belfry
