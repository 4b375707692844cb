// What a GPU must show: kernels agree with their references, strategies and repetitions give the same bits, updates the CPU's, training TensorFlow's; nothing leaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/fusions.h>

#include "awaited.h"
#include "golden.h"
#include "machine.h"
#include "nets.h"

namespace belfry::test {
namespace {

/// On the host all is done in small: the way is tested there, not the machine.
int often(int on_gpu, int on_host) { return machine().real ? on_gpu : on_host; }

/// The golden nets of this program train there too.
class GoldenOnGpu : public testing::Environment {
  void SetUp() override { golden_place() = {"gpu:0/0,gpu:0/1", machine().why, parse_device("gpu:0/0"), {.cores = 2, .library = machine().library}}; }
};
const testing::Environment* const kGolden = testing::AddGlobalTestEnvironment(new GoldenOnGpu);

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().why.empty()) GTEST_SKIP() << machine().why;
  }
  SessionOptions options() const { return {.cores = 2, .library = machine().library}; }
};

class GpuKernels : public Gpu {};

TEST_F(GpuKernels, agree_with_the_references_of_their_ops) {
  const OpSet ops = standard_ops();
  auto device = machine().open(parse_device("gpu:0"));
  auto queue = device->queue(0);
  device->enter();
  int runs = 0, every = often(1, 17), n = 0;
  for (const auto& def : ops.all()) {
    if (n++ % every) continue;
    std::vector<Awaited> awaited;
    await_all(machine().library->kernels.at("gpu"), *def, awaited);
    for (const Awaited& w : awaited) expect_as_wanted(w, {device.get(), queue.get()});
    runs += static_cast<int>(awaited.size());
  }
  EXPECT_GT(runs, often(500, 10));
  RecordProperty("runs", runs);
}

/// A product or convolution with its bias and activation: as its members one by one, and what is no number stays none.
TEST_F(GpuKernels, of_groups_agree_with_their_members_and_hide_no_nan) {
  auto device = machine().open(parse_device("gpu:0"));
  auto queue = device->queue(0);
  device->enter();
  const KernelTable& table = machine().library->kernels.at("gpu");
  auto dense = [](Builder& b, DType t) {
    const Value x = b.input("x", t, {kBatch, 40}), w = b.input("w", t, {40, 24}), bias = b.input("b", t, {24});
    return matmul(x, w) + bias;
  };
  const std::vector<std::function<Value(Builder&, DType)>> groups = {
      dense, [&](Builder& b, DType t) { return relu(dense(b, t)); }, [&](Builder& b, DType t) { return gelu(dense(b, t), true); },
      [](Builder& b, DType t) {
        const Value x = b.input("x", t, {kBatch, 6, 6, 8}), w = b.input("w", t, {3, 3, 8, 16}), bias = b.input("b", t, {16});
        return relu(conv2d(x, w, {.padding = "same"}) + bias);
      }};
  std::mt19937_64 rng(4);
  for (const auto& group : groups)
    for (DType t : {f32, bf16, f16}) {
      Builder b("group");
      const Value y = group(b, t);
      const FusionGroup found = find_groups(b.graph()).at(0);
      Awaited w;
      w.what = found.kind + " of " + std::string(name_of(t));
      w.attributes = std::make_shared<Attributes>();
      w.request.op = found.kind;
      w.request.attributes = w.attributes.get();
      for (NodeId id : b.graph().inputs()) w.request.inputs.push_back({t, extents_of(b.graph().node(id).types[0].shape, 6)}), w.inputs.push_back(draw({b.graph().node(id).types[0]}, 6, false, rng));
      w.request.outputs = {{t, extents_of(y.shape(), 6)}};
      w.request.output_types = {y.type()};
      w.request.wanted = {true};
      w.given = {true, true, true};
      describe_members(b.graph(), found.members, w.request);
      w.wanted = {HostTensor(t, w.request.outputs[0].shape)};
      KernelTable().prepare(kReferenceKernel, w.request)->launch({{w.inputs[0].raw(), w.inputs[1].raw(), w.inputs[2].raw()}, {w.wanted[0].raw()}});
      const auto choice = table.choose(w.request);
      ASSERT_NE(choice.name, kReferenceKernel) << w.what;
      w.scratch = choice.support.scratch_bytes;
      w.kernel = table.prepare(choice.name, w.request, {w.scratch, false});
      EXPECT_LE(distance(run(w, {device.get(), queue.get()})[0], w.wanted[0]), t == f32 ? 1e-5 : t == bf16 ? 0x1p-6 : 0x1p-9) << w.what << " by " << choice.name;
      if (t != f32) continue;
      w.inputs[0].data<float>()[0] = NAN;
      EXPECT_TRUE(std::isnan(run(w, {device.get(), queue.get()})[0].data<float>()[0])) << w.what << " by " << choice.name << " hides a NaN";
    }
}

struct Layout {
  const char* name;
  Strategy strategy;
};

std::vector<Layout> layouts(int towers) {
  auto d = [](const char* text) { return parse_devices(text); };
  const char *two = "gpu:0/0,gpu:0/1", *four = "gpu:0/0,gpu:0/1,gpu:0/2,gpu:0/3";
  return {{"variables on the host", to_strategy(Towers{.devices = d(two), .variables = cpu(0), .towers = towers, .threads = 1})},
          {"variables on a GPU", to_strategy(Towers{.devices = d(four), .variables = parse_device("gpu:0/0"), .towers = towers, .threads = 1})},
          {"mirrored on two", to_strategy(Mirrored{.devices = d(two), .towers = towers, .threads = 1})},
          {"mirrored on four", to_strategy(Mirrored{.devices = d(four), .towers = towers, .threads = 1})},
          {"layers", to_strategy(Layers{.devices = d(two), .towers = towers, .threads = 1})},
          {"pipeline", to_strategy(Layers{.devices = d(four), .towers = towers, .order = PhaseOrder::one_f_one_b, .threads = 1})}};
}

State trained(const Graph& graph, const Strategy& strategy, const SessionOptions& options, std::int64_t batch, int steps) {
  Session session(graph, strategy, options);
  session.load_state(state_for(session.training_graph()));
  for (int k = 0; k < steps; ++k) session.step(feeds_for(graph, batch, static_cast<std::uint64_t>(k)));
  return session.state();
}

Graph without_requests(Graph graph) {
  for (NodeId id = 0; id < graph.size(); ++id) graph.edit(id).device.reset();
  return graph;
}

class GpuBits : public Gpu {};

/// Updates, joins and moves are the CPU's, so that variables may lie on the host.
TEST_F(GpuBits, are_the_same_on_one_two_and_four_logical_devices) {
  std::vector<std::string> names = names_of_nets();
  if (!machine().real) names = {"decay", "batch_norm"};
  for (const std::string& name : names) {
    Graph graph = without_requests(built(name));
    const State want = trained(graph, to_strategy(Single{.device = parse_device("gpu:0"), .towers = 4, .threads = 1}), options(), 7, 3);
    for (const Layout& l : layouts(4)) EXPECT_EQ(trained(graph, l.strategy, options(), 7, 3), want) << name << ", " << l.name;
  }
}

TEST_F(GpuBits, of_updates_are_the_cpus) {
  const std::vector<std::pair<const char*, Optimizer>> kinds = {{"sgd", Sgd{}}, {"momentum", Momentum{.nesterov = true}}, {"adam", Adam{.weight_decay = 0.01}}, {"adam, exact", Adam{.powers = "exact"}},
                                                                {"adamax", Adamax{}}, {"rmsprop", Rmsprop{}}, {"adagrad", Adagrad{}}, {"adadelta", Adadelta{}}, {"lion", Lion{}}};
  for (const auto& [kind, optimizer] : kinds) {
    Builder b("updates");
    Value w = b.variable("w", {1003}), x = b.input("x", f32, {kBatch, 1003});
    b.minimize(reduce_sum(reduce_sum(x * w, {.axes = {1}})), optimizer);
    Graph graph = std::move(b).build();
    auto on = [&](const char* device) { return trained(graph, to_strategy(Single{.device = parse_device(device), .towers = 2, .threads = 1}), options(), 4, often(50, 3)); };
    EXPECT_EQ(on("gpu:0"), on("cpu:0")) << kind;
  }
}

TEST_F(GpuBits, are_the_same_twenty_times) {
  std::vector<std::pair<const char*, Settings>> nets = {{"mnist_cnn", {}}, {"cifar10", {}}, {"mobilenet_v2", {{"alpha", 0.35}, {"image", 96}}}, {"transformer", {}}};
  if (!machine().real) nets = {{"mlp", {}}};
  for (const auto& [name, settings] : nets) {
    State first;
    for (int k = 0; k < often(20, 2); ++k) {
      Session session(net_named(name).build(machine().library->ops, settings), Mirrored{.devices = parse_devices("gpu:0/0,gpu:0/1"), .towers = 4}, options());
      for (int step = 0; step < 3; ++step) session.step(synthetic_feeds(session.graph(), often(32, 4)));
      if (k == 0) first = session.state();
      EXPECT_EQ(session.state(), first) << name << ", run " << k;
    }
  }
}

class GpuMemory : public Gpu {};

TEST_F(GpuMemory, does_not_shrink_over_a_thousand_steps) {
  Session session(net_named("mlp").build(machine().library->ops), Single{.device = parse_device("gpu:0")}, options());
  const auto feeds = synthetic_feeds(session.graph(), often(64, 2));
  std::size_t before = 0;
  for (int k = 0; k < often(1020, 8); ++k) {
    session.step(feeds);
    if (k == often(19, 3)) before = machine().free_bytes();
  }
  EXPECT_EQ(machine().free_bytes(), before);
}

class GpuGolden : public Gpu {};

/// One step of what MnistCnn does, which takes all of them and asks for a real GPU.
TEST_F(GpuGolden, mnist_cnn_begins_as_tensorflow_does) {
  NEED_SHARED("golden/mnist_cnn");
  nlohmann::json golden = expected("mnist_cnn/expected.json")["runs"]["towers_2"];
  Session session(graph_of("mnist_cnn"), towers(2), options());
  session.load_state(tensors("mnist_cnn/init.safetensors"));
  expect_loss(session.step(mnist_rows().slice(0, 32).columns, {"loss"}).item<float>("loss"), golden["losses"][0], golden["loss_spread"][0], 0);
}

}  // namespace
}  // namespace belfry::test
