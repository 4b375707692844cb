#include <belfry/frontends/nn/nets.h>

#include <fmt/format.h>

namespace belfry {

namespace {

/// Mean sparse cross entropy, accuracy, and logits as output.
template <class Optimizer>
Graph classifier(Builder b, Value logits, Value label, const Optimizer& optimizer) {
  Value loss = identity(mean(sparse_softmax_cross_entropy(logits, label)), "loss");
  b.output(logits);
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.minimize(loss, optimizer);
  return std::move(b).build();
}

struct Images {
  Images(const char* name, std::shared_ptr<const OpSet> ops) : b(name, std::move(ops)), image(b.input("image", f32, {kBatch, 28, 28, 1})), label(b.input("label", i32, {kBatch})) {}
  Builder b;
  Value image, label;
};

Graph mnist_cnn(std::shared_ptr<const OpSet> ops) {
  Images in("mnist_cnn", std::move(ops));
  Value x = nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu});
  x = flatten(max_pool2d(x, {.window = {2, 2}}));
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Adam{});
}

Graph mnist_cnn_wide(std::shared_ptr<const OpSet> ops) {
  Images in("mnist_cnn_wide", std::move(ops));
  Value x = nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu});
  x = nn::conv2d(x, {.filters = 64, .kernel = 3, .activation = Activation::relu});
  x = nn::dense(flatten(max_pool2d(x, {.window = {2, 2}})), {.units = 128, .activation = Activation::relu});
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Adam{});
}

/// Two softmax heads on one body: the label's remainder and quotient by 5.
Graph mnist_two_heads(std::shared_ptr<const OpSet> ops) {
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

Graph mlp(std::shared_ptr<const OpSet> ops) {
  Images in("mlp", std::move(ops));
  Value x = nn::dense(flatten(in.image), {.units = 512, .activation = Activation::relu});
  x = nn::dense(x, {.units = 512, .activation = Activation::relu});
  return classifier(std::move(in.b), nn::dense(x, {.units = 10}), in.label, Momentum{.learning_rate = 0.01, .momentum = 0.9});
}

}  // namespace

const std::vector<NetDef>& standard_nets() {
  static const std::vector<NetDef> nets = {{"mnist_cnn", "Conv 32, pool, Dense 10; Adam: 54,410 parameters", mnist_cnn},
                                           {"mnist_cnn_wide", "Conv 32, Conv 64, pool, Dense 128, Dense 10; Adam", mnist_cnn_wide},
                                           {"mnist_two_heads", "two Conv and pool, Dense 64, heads of 5 and 2; Adam: 121,735 parameters", mnist_two_heads},
                                           {"mlp", "784-512-512-10; momentum", mlp}};
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
