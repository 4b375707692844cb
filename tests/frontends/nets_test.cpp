#include <gtest/gtest.h>

#include <belfry/belfry.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/nn/sequential.h>
#include <belfry/ops/passes/passes.h>

#include "says.h"

namespace belfry {
namespace {

using test::message_of;

std::shared_ptr<const OpSet> ops() { return std::make_shared<const OpSet>(standard_ops()); }

/// Elements of the float variables: weights and running statistics.
std::int64_t parameters(const Graph& g, bool trainable_only = false) {
  std::int64_t out = 0;
  for (NodeId id : g.variables())
    if (const Node& n = g.node(id); is_float(n.types[0].dtype) && (!trainable_only || n.attributes.flag("trainable"))) out += factor_of(n.types[0].shape);
  return out;
}

Graph forward(std::int64_t size, const std::function<Value(Value)>& net) {
  Builder b("net", ops());
  b.output(net(b.input("image", f32, {kBatch, size, size, 3})));
  return std::move(b).build();
}

TEST(Nets, have_the_parameters_that_are_published) {
  EXPECT_EQ(parameters(net_named("mnist_cnn").build(ops())), 54410);
  EXPECT_EQ(parameters(net_named("mnist_two_heads").build(ops())), 121735);
  EXPECT_EQ(parameters(net_named("cifar10").build(ops())), 1068298);
  EXPECT_EQ(parameters(net_named("inception_resnet_v2").build(ops(), {{"image", 139}})), 55873736);
  EXPECT_EQ(parameters(forward(299, [](Value x) { return nn::inception_resnet_v2(x, {.include_top = false}); })), 54336736);
  EXPECT_EQ(parameters(net_named("resnet50").build(ops())), 25636712);
  EXPECT_EQ(parameters(net_named("inception_v3").build(ops())), 23851784);
  EXPECT_EQ(parameters(net_named("resnet101").build(ops())), 44707176);
  EXPECT_EQ(parameters(net_named("vgg16").build(ops())), 138357544);
  EXPECT_EQ(parameters(net_named("alexnet").build(ops())), 60965224);
}

TEST(Nets, mobilenet_v2_has_them_at_every_width) {
  struct Row {
    double alpha;
    std::int64_t no_top, trainable, with_top;
  };
  for (const Row& r : {Row{0.35, 410208, 396128, 1691208}, {0.5, 706224, 687680, 1987224}, {0.75, 1382064, 1355424, 2663064}, {1.0, 2257984, 2223872, 3538984}, {1.4, 4363712, 4315776, 6156712}}) {
    Graph bare = forward(32, [&](Value x) { return nn::mobilenet_v2(x, {.alpha = r.alpha, .include_top = false}); });
    EXPECT_EQ(parameters(bare), r.no_top) << r.alpha;
    EXPECT_EQ(parameters(bare, true), r.trainable) << r.alpha;
    EXPECT_EQ(parameters(forward(224, [&](Value x) { return nn::mobilenet_v2(x, {.alpha = r.alpha}); })), r.with_top) << r.alpha;
  }
  EXPECT_EQ(parameters(forward(96, [](Value x) { return nn::mobilenet_v2(x, {.alpha = 0.35, .include_top = false, .trainable = false}); }), true), 0);
}

TEST(Nets, give_feature_maps_of_the_published_sizes) {
  auto last = [](std::int64_t size, const std::function<Value(Value)>& net) {
    Graph g = forward(size, net);
    return extents_of(g.type(g.outputs[0]).shape, 2);
  };
  EXPECT_EQ(last(224, [](Value x) { return nn::mobilenet_v2(x, {.include_top = false}); }), (Extents{2, 7, 7, 1280}));
  EXPECT_EQ(last(97, [](Value x) { return nn::mobilenet_v2(x, {.alpha = 1.4, .include_top = false}); }), (Extents{2, 4, 4, 1792}));
  EXPECT_EQ(last(299, [](Value x) { return nn::inception_resnet_v2(x, {.include_top = false}); }), (Extents{2, 8, 8, 1536}));
  EXPECT_EQ(last(224, [](Value x) { return nn::resnet50(x, {.include_top = false}); }), (Extents{2, 7, 7, 2048}));
  EXPECT_EQ(last(299, [](Value x) { return nn::inception_v3(x, {.include_top = false}); }), (Extents{2, 8, 8, 2048}));
  EXPECT_EQ(last(224, [](Value x) { return nn::vgg16(x, {.include_top = false}); }), (Extents{2, 7, 7, 512}));
  EXPECT_EQ(last(227, [](Value x) { return nn::alexnet(x, {.include_top = false}); }), (Extents{2, 6, 6, 256}));
}

TEST(Nets, packed_makes_queries_keys_and_values_by_one_product) {
  for (bool packed : {false, true}) {
    const Graph g = net_named("transformer").build(ops(), {{"packed", packed}});
    EXPECT_EQ(g.find("block_1_attention/qkv/kernel").has_value(), packed);
    EXPECT_EQ(g.find("block_1_attention/query/kernel").has_value(), !packed);
  }
}

TEST(Nets, refuse_settings_and_pictures_that_do_not_suit_them) {
  EXPECT_NE(message_of([] { net_named("mobilenet_v2").build(ops(), {{"alhpa", 1}}); }).find("no setting 'alhpa'; it has alpha, classes, image, rate"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("mnist_cnn").build(ops(), {{"image", 32}}); }).find("has no settings"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("resnet50").build(ops(), {{"classes", 2.5}}); }).find("classes = 2.5 is no whole number"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("mobilenet_v2").build(ops(), {{"image", 16}}); }).find("at least 32 x 32, not f32(batch, 16, 16, 3)"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("transformer").build(ops(), {{"heads", 3}}); }).find("128 cannot be shared by 3 heads"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("transformer").build(ops(), {{"packed", 0.5}}); }).find("packed = 0.5 is neither 0 nor 1"), std::string::npos);
  EXPECT_NE(message_of([] { net_named("transformer").build(ops(), {{"blocks", 100000}}); }).find("100000 blocks; there are from 0 to 1000"), std::string::npos);
}

TEST(Nets, all_differentiate_and_read_back_from_their_files) {
  for (const NetDef& net : standard_nets()) {
    Graph g = net.build(ops());
    std::string text = write_graph(g);
    EXPECT_EQ(write_graph(read_graph(text, net.name + ".json", ops())), text) << net.name;
    EXPECT_GT(run_passes(training_passes(), g).size(), g.size()) << net.name;
  }
}

// ---------------------------------------------------------------- three styles

Graph digits(const std::string& name, const std::function<Value(Value)>& net) {
  Builder b(name, ops());
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  b.minimize(mean(sparse_softmax_cross_entropy(net(image), label)), Adam{});
  return std::move(b).build();
}

/// A net as an object that holds its layers.
struct Digits {
  nn::Conv2d conv{{.filters = 8, .activation = Activation::relu}};
  nn::Dense hidden{{.units = 16, .activation = Activation::tanh}}, logits{{.units = 10}};
  Value operator()(Value x) { return logits(hidden(flatten(max_pool2d(conv(x), {.window = {2, 2}})))); }
};

TEST(Styles, sequential_functional_and_object_give_the_same_graph) {
  nn::Sequential sequential({nn::Conv2d({.filters = 8, .activation = Activation::relu}), nn::max_pool2d({.window = {2, 2}}), nn::flatten(),
                             nn::Dense({.units = 16, .activation = Activation::tanh}), nn::Dense({.units = 10})});
  auto functional = [](Value x) {
    x = nn::conv2d(x, {.filters = 8, .activation = Activation::relu});
    x = nn::dense(flatten(max_pool2d(x, {.window = {2, 2}})), {.units = 16, .activation = Activation::tanh});
    return nn::dense(x, {.units = 10});
  };
  Digits object;
  auto text = [](const std::string& name, const std::function<Value(Value)>& net) {
    std::string out = write_graph(digits(name, net));
    out.replace(out.find(name), name.size(), "NAME");
    return out;
  };
  std::string first = text("sequential", [&](Value x) { return sequential(x); });
  EXPECT_EQ(text("functional", functional), first);
  EXPECT_EQ(text("object", [&](Value x) { return object(x); }), first);
}

TEST(Styles, a_layer_called_twice_shares_its_variables) {
  nn::Sequential twice({nn::Dense({.units = 6})});
  Builder b("shared", ops());
  Value x = b.input("x", f32, {kBatch, 6});
  b.output(twice(twice(x)));
  EXPECT_EQ(parameters(std::move(b).build()), 42);
}

}  // namespace
}  // namespace belfry
