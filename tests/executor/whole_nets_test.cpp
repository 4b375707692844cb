// The nets that come with Belfry, small: the same bits on any devices, and gradients beside differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include <belfry/belfry.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/nn/nets/nets.h>

namespace belfry::test {
namespace {

struct Small {
  std::string name;
  Settings settings;
  bool differences = false;  ///< cheap enough, and smooth enough, for f64 by references
};

const std::vector<Small>& small_nets() {
  static const std::vector<Small> all = {{"mnist_cnn", {}, true},
                                         {"mnist_cnn_wide", {}, false},
                                         {"mnist_two_heads", {}, true},
                                         {"mlp", {}, true},
                                         {"cifar10", {}, true},
                                         {"mobilenet_v2", {{"alpha", 0.35}, {"image", 32}, {"classes", 5}}, false},
                                         {"inception_resnet_v2", {{"image", 75}, {"classes", 5}}, false},
                                         {"inception_v3", {{"image", 75}, {"classes", 5}}, false},
                                         {"resnet50", {{"image", 32}, {"classes", 5}}, false},
                                         {"resnet101", {{"image", 32}, {"classes", 5}}, false},
                                         {"vgg16", {{"image", 32}, {"classes", 5}}, false},
                                         {"alexnet", {{"image", 67}, {"classes", 5}}, false},
                                         {"transformer", {{"length", 8}, {"width", 16}, {"heads", 2}, {"blocks", 2}, {"dropout", 0.1}}, true}};
  return all;
}

std::shared_ptr<const OpSet> ops() { return std::make_shared<const OpSet>(standard_ops()); }
void PrintTo(const Small& net, std::ostream* out) { *out << net.name; }

/// Whole numbers below 5, or what a picture may hold.
std::map<std::string, HostTensor> feeds_of(const Graph& graph, std::int64_t batch) {
  std::mt19937_64 rng(5);
  std::normal_distribution<double> normal;
  std::map<std::string, HostTensor> out;
  for (NodeId id : graph.inputs()) {
    const Node& n = graph.node(id);
    HostTensor t(n.types[0].dtype, extents_of(n.types[0].shape, batch));
    visit_dtype(t.dtype(), [&]<class T>() {
      for (T& x : t.data<T>()) x = static_cast<T>(is_float(t.dtype()) ? normal(rng) : static_cast<double>(rng() % 5));
    });
    out.emplace(n.name, std::move(t));
  }
  return out;
}

class WholeNet : public testing::TestWithParam<Small> {};

TEST_P(WholeNet, has_the_same_bits_on_any_devices) {
  if (!std::getenv("BELFRY_EXHAUSTIVE") && (GetParam().name == "inception_resnet_v2" || GetParam().name == "resnet101")) GTEST_SKIP() << "of what others have, more: BELFRY_EXHAUSTIVE=1 runs it";
  constexpr int kTowers = 3;
  const int steps = GetParam().differences ? 2 : 1;
  constexpr std::int64_t kRows = 4;
  auto trained = [&](const auto& strategy) {
    Graph graph = net_named(GetParam().name).build(ops(), GetParam().settings);
    const auto feeds = feeds_of(graph, kRows);
    Session session(std::move(graph), strategy, {.seed = 3});
    for (int k = 0; k < steps; ++k) session.step(feeds);
    return session.state();
  };
  State first = trained(Towers{.devices = parse_devices("cpu:0"), .towers = kTowers, .threads = 1});
  for (const auto& [name, value] : first) {
    HostTensor wide = converted(value, f64);
    for (double x : wide.data<double>()) ASSERT_TRUE(std::isfinite(x)) << name;
  }
  EXPECT_EQ(trained(Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = kTowers, .threads = 1}), first);
  EXPECT_EQ(trained(Towers{.devices = parse_devices("sim:0-2"), .towers = kTowers, .threads = 1}), first);
}

INSTANTIATE_TEST_SUITE_P(Every, WholeNet, testing::ValuesIn(small_nets()), [](const auto& info) { return info.param.name; });

TEST(WholeNets, are_all_tried) {
  std::set<std::string> here, all;
  for (const Small& s : small_nets()) here.insert(s.name);
  for (const NetDef& n : standard_nets()) all.insert(n.name);
  EXPECT_EQ(here, all);
}

/// The same net in f64: its file says so.
Graph in_f64(const Small& net) {
  std::string text = write_graph(net_named(net.name).build(ops(), net.settings));
  for (std::size_t at = 0; (at = text.find("\"f32\"", at)) != text.npos;) text.replace(at, 5, "\"f64\"");
  return read_graph(text, net.name, ops());
}

TEST_P(WholeNet, has_the_gradient_of_its_loss) {
  if (!GetParam().differences) GTEST_SKIP() << "batch statistics of few elements have no smooth surroundings, or it takes long by references; ops_test has the gradients of its ops";
  Graph graph = in_f64(GetParam());
  const auto feeds = feeds_of(graph, 2);
  std::vector<std::string> fetches = {"loss"}, variables;
  for (NodeId id : graph.variables())
    if (graph.node(id).attributes.flag("trainable")) variables.push_back(graph.node(id).name), fetches.push_back("gradient/" + variables.back());
  Session session(std::move(graph), Single{}, {.seed = 3});
  const State at = session.state();
  const Results here = session.run(feeds, fetches);
  std::mt19937_64 rng(7);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 3; ++trial) {
    State direction;
    double slope = 0, length = 0;
    for (const std::string& name : variables) {
      HostTensor d(f64, at.at(name).shape());
      auto g = here.data<double>("gradient/" + name);
      for (std::size_t i = 0; i < g.size(); ++i) {
        d.data<double>()[i] = normal(rng);
        slope += d.data<double>()[i] * g[i];
        length += g[i] * g[i];
      }
      direction.emplace(name, std::move(d));
    }
    auto loss = [&](double step) {
      State moved = at;
      for (const auto& [name, d] : direction)
        for (std::size_t i = 0; i < d.data<double>().size(); ++i) moved.at(name).data<double>()[i] += step * d.data<double>()[i];
      session.load_state(moved);
      return session.run(feeds, {"loss"}).item<double>("loss");
    };
    constexpr double kStep = 1e-7;
    EXPECT_NEAR((loss(kStep) - loss(-kStep)) / (2 * kStep), slope, 1e-5 * std::sqrt(length)) << "direction " << trial;
  }
}

}  // namespace
}  // namespace belfry::test
