// What a GPU must show: kernels agree with their references, strategies and repetitions give the same bits, updates the CPU's, training TensorFlow's; nothing leaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/emit.h>
#include <belfry/ops/fusions.h>

#include "awaited.h"
#include "golden.h"
#include "layouts.h"
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

/// A test that loses its GPU ends the program: what is left to run needs another process, as the bundle's run.sh starts it.
struct EndsWithTheGpu : testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& t) override {
    if (!machine().why.empty() || machine().alive()) return;
    std::printf("[  FAILED  ] %s.%s, behind which the GPU is lost (0 ms)\n", t.test_suite_name(), t.name());
    std::fflush(stdout);
    std::_Exit(3);
  }
};
const bool kListening = (testing::UnitTest::GetInstance()->listeners().Append(new EndsWithTheGpu), true);

class GpuKernels : public Gpu {};
class GpuOps : public Gpu, public testing::WithParamInterface<std::string> {};

std::vector<std::string> ops_here() {
  std::vector<std::string> out;
  const OpSet ops = standard_ops();
  std::size_t n = 0;
  for (const auto& def : ops.all())
    if (n++ % static_cast<std::size_t>(often(1, 17)) == 0) out.push_back(def->name);
  return out;
}

/// BELFRY_GPU_KERNELS: only kernels whose names begin so.
TEST_P(GpuOps, agree_with_their_references) {
  const char* wanted = std::getenv("BELFRY_GPU_KERNELS");
  const OpSet ops = standard_ops();
  const KernelTable& table = machine().library->kernels.at("gpu");
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  auto begin = [&] {
    queue.reset();
    device = machine().open(parse_device("gpu:0"));
    device->enter();
    queue = device->queue(0);
  };
  begin();
  std::vector<Awaited> awaited;
  await_all(table, ops.at(GetParam()), awaited);
  int runs = 0;
  for (const Awaited& w : awaited) try {
      if (wanted && !w.by.starts_with(wanted)) continue;
      if (!machine().real && w.bytes() > 32 * 1024) continue;  // GeneratedKernels runs the large ones on the host
      ++runs;
      expect_as_wanted(w, {device.get(), queue.get()});
    } catch (const std::exception& e) {
      ADD_FAILURE() << w.what << ": " << e.what();
      if (!machine().alive()) FAIL() << "the GPU is lost since " << w.what;
      begin();
    }
  RecordProperty("runs", runs);
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuOps, testing::ValuesIn(ops_here()), [](const auto& info) { return info.param; });

/// Which kernels take a case is known without a GPU.
TEST(GpuCases, reach_every_kernel) { EXPECT_THAT(unreached(cuda_kernels(std::make_shared<CudaToolkit>()), standard_ops()), testing::IsEmpty()); }

/// A product with its bias and activation, sums of products, also in f32 of halves, a norm with what is around it, a convolution of one tap with another value too, one with what is behind it, and before it: as their members one by one, and what is no number stays none.
TEST_F(GpuKernels, of_groups_agree_with_their_members_and_hide_no_nan) {
  auto device = machine().open(parse_device("gpu:0"));
  auto queue = device->queue(0);
  device->enter();
  const KernelTable& table = machine().library->kernels.at("gpu");
  auto dense = [](Builder& b, DType t) {
    const Value x = b.input("x", t, {kBatch, 40}), w = b.input("w", t, {40, 24}), bias = b.input("b", t, {24});
    return matmul(x, w) + bias;
  };
  auto one_tap = [](Builder& b, DType t) {
    const Value x = b.input("x", t, {kBatch, 3, 5, 40}), w = b.input("w", t, {1, 1, 40, 24}), bias = b.input("b", t, {24});
    return conv2d(x, w) + bias;
  };
  auto with_another = [](Builder& b, Value y) { return y + b.input("other", y.dtype(), y.shape()); };  // inputs one by one, in the order in which they are read
  auto norm_slope = [](Builder& b, DType t, std::int64_t n, const char* activation = "none") {
    const DType wide = is_half(t) ? f32 : t;
    const Value dy = b.input("dy", t, {kBatch, 30, n}), y = b.input("y", t, {kBatch, 30, n}), x = b.input("x", t, {kBatch, 30, n});
    const Value gamma = b.input("gamma", wide, {n}), beta = b.input("beta", wide, {n}), mean = b.input("mean", wide, {n}), variance = b.input("variance", wide, {n});
    return emit("batch_norm_gradient", {x, gamma, beta, mean, variance, relu_gradient(dy, y)}, {{"activation", activation}}, {});
  };
  const std::vector<std::function<Value(Builder&, DType)>> groups = {
      dense, [&](Builder& b, DType t) { return gelu(dense(b, t), true); }, one_tap, [](Builder& b, DType t) {
        const DType wide = is_half(t) ? f32 : t;
        const Value x = b.input("x", t, {kBatch, 30, 24}), gamma = b.input("gamma", wide, {24}), beta = b.input("beta", wide, {24}), mean = b.input("mean", wide, {24}), variance = b.input("variance", wide, {24});
        const Value shortcut = b.input("shortcut", t, {kBatch, 30, 24});
        return relu6(batch_norm(x, gamma, beta, mean, variance) + shortcut);
      }, [&](Builder& b, DType t) { return norm_slope(b, t, 24); }, [&](Builder& b, DType t) { return norm_slope(b, t, 24, "relu6"); }, [](Builder& b, DType t) {
        const DType wide = is_half(t) ? f32 : t;
        const Value x = b.input("x", t, {kBatch, 30, 24}), mean = b.input("mean", wide, {kBatch, 30}), inverse = b.input("inverse", wide, {kBatch, 30}), dy = b.input("dy", t, {kBatch, 30, 24});
        const Value gamma = b.input("gamma", wide, {24}), shortcut = b.input("shortcut", t, {kBatch, 30, 24});
        return emit("layer_norm_gradient", {x, mean, inverse, dy, gamma}, {}, {}) + shortcut;
      },
      [](Builder& b, DType t) {
        const DType wide = is_half(t) ? f32 : t;
        const Value x = b.input("x", t, {kBatch, 7, 6, 24}), filter = b.input("filter", t, {3, 3, 1, 24}), scale = b.input("scale", wide, {24}), shift = b.input("shift", wide, {24});
        const Value y = conv2d(x, filter, {.padding = "same", .groups = 24}), bent = relu6((is_half(t) ? cast(y, wide) : y) * scale + shift);
        return is_half(t) ? cast(bent, t) : bent;
      },
      [](Builder& b, DType t) {  // of an x that a tree makes
        const DType wide = is_half(t) ? f32 : t;
        auto bent = [&](Value v, const std::string& name) {
          const Value scaled = (is_half(t) ? cast(v, wide) : v) * b.input(name + "/scale", wide, {24}), made = relu6(scaled + b.input(name + "/shift", wide, {24}));
          return is_half(t) ? cast(made, t) : made;
        };
        const Value x = bent(b.input("x", t, {kBatch, 7, 6, 24}), "before"), filter = b.input("filter", t, {3, 3, 1, 24});
        return bent(conv2d(x, filter, {.strides = {2, 2}, .padding = "same", .groups = 24}), "behind");
      },
      [&](Builder& b, DType t) { return with_another(b, dense(b, t)); },
      [](Builder& b, DType t) {
        const Value x = b.input("x", t, {kBatch, 40}), w = b.input("w", t, {40, 24});
        const Value bias = b.input("b", f32, {24}), other = b.input("other", f32, {kBatch, 24});
        return b.graph().add("matmul", {x, w}, {{"wide", true}}) + bias + other;
      },
      [](Builder& b, DType t) {
        std::vector<Value> products;
        for (const char* k : {"0", "1", "2"}) {
          const Value x = b.input(std::string("x") + k, t, {kBatch, 40});
          products.push_back(matmul(x, b.input(std::string("w") + k, t, {40, 24})));
        }
        return add_n(products);
      }, [&](Builder& b, DType t) {  // with the sum of its rows, in several blocks of them, where others read what is summed
        const Value dx = norm_slope(b, t, 264);
        return b.output(dx), reduce_sum(dx, {.axes = {0, 1}});
      }, [&](Builder& b, DType t) { return with_another(b, one_tap(b, t)); }};
  std::mt19937_64 rng(4);
  for (const auto& group : groups)
    for (DType t : {f32, bf16, f16}) {
      Builder b("group");
      group(b, t);
      const FusionGroup found = find_gpu_groups(b.graph()).at(0);
      Awaited w;
      w.what = found.kind + " of " + std::string(name_of(t));
      w.attributes = std::make_shared<Attributes>();
      w.request.op = found.kind;
      w.request.attributes = w.attributes.get();
      for (NodeId id : b.graph().inputs()) {  // in the order in which the members read them
        const Node& input = b.graph().node(id);
        const NodeId reader = b.graph().readers(id).front();
        const std::vector<ValueId>& read = b.graph().node(reader).inputs;
        const bool given = !reads_shape_only(b.graph().node(reader), static_cast<std::size_t>(std::find(read.begin(), read.end(), ValueId{id, 0}) - read.begin()));
        w.given.push_back(given);
        w.inputs.push_back(given ? draw({input.types[0], input.name == "variance" ? 0.5 : -2, 2}, 6, false, rng) : HostTensor(f32, {0}));
        w.request.inputs.push_back(w.inputs.back().type());
      }
      Arguments on_host;
      for (ValueId v : values_of(b.graph(), found)) {
        w.request.outputs.push_back(local_type(b.graph().type(v), 6));
        w.request.output_types.push_back(b.graph().type(v));
        w.request.wanted.push_back(true);
        w.wanted.emplace_back(w.request.outputs.back().dtype, w.request.outputs.back().shape);
      }
      describe_members(b.graph(), found, w.request);
      for (std::size_t i = 0; i < w.inputs.size(); ++i) on_host.inputs.push_back(w.given[i] ? w.inputs[i].raw() : nullptr);
      for (HostTensor& out : w.wanted) on_host.outputs.push_back(out.raw());
      KernelTable().prepare(kReferenceKernel, w.request)->launch(on_host);
      const auto choice = table.choose(w.request);
      ASSERT_NE(choice.name, kReferenceKernel) << w.what;
      w.scratch = choice.support.scratch_bytes;
      w.kernel = table.prepare(choice.name, w.request, {w.scratch, false});
      const double roundings = found.kind == kMatmulAdd ? 4 : found.kind == kConv2dBiasAdd ? 3 : 1;
      const std::vector<HostTensor> got = run(w, {device.get(), queue.get()});
      for (std::size_t k = 0; k < got.size(); ++k) {
        const double tolerance = got[k].dtype() == f32 && t == f32 ? 1e-5 : got[k].dtype() == f32 ? 1e-4 : t == bf16 ? 0x1p-6 : 0x1p-9;
        EXPECT_LE(distance(got[k], w.wanted[k]), roundings * tolerance) << w.what << " by " << choice.name << ", output " << k;
      }
      if (t != f32 || found.kind == kWithElementwise) continue;
      w.inputs[0].data<float>()[0] = NAN;
      EXPECT_TRUE(std::isnan(run(w, {device.get(), queue.get()})[0].data<float>()[0])) << w.what << " by " << choice.name << " hides a NaN";
    }
}

/// What libraries note of an engine does not say how its sums are rounded: each that a plan may name computes a convolution of the small nets, or a product as it is or of long sums.
/// A tensor core's rounding would be ten times the tolerance of f32.
TEST_F(GpuKernels, engines_compute_what_the_references_do) {
  auto device = machine().open(parse_device("gpu:0"));
  device->enter();
  auto queue = device->queue(0);
  const OpSet ops = standard_ops();
  auto check = [&](const char* op, const char* name, const Attributes& attributes, std::vector<CaseInput> inputs, const TensorType& output, std::int64_t rows) {
    std::vector<Awaited> engines;
    await_engines(machine().library->kernels.at("gpu"), ops.at(op), {.name = name, .attributes = attributes, .inputs = std::move(inputs), .outputs = {output}, .keep_dtypes = true}, machine().real ? rows : 1, engines);
    EXPECT_EQ(engines.empty(), !machine().real) << name;  // the host has none
    for (const Awaited& w : engines) {
      const double off = difference(run(w, {device.get(), queue.get()})[0], w.wanted[0], 1, false) / largest(w.wanted[0]);
      std::cout << "  " << w.what << ": off by " << off << " of the largest\n";
      EXPECT_LE(off, output.dtype == f32 ? 1e-5 : 0x1p-7) << w.what;
    }
  };
  struct Form {
    const char* name;
    std::int64_t size, in, window, out;
    const char* padding;
  };
  for (const Form& f : {Form{"cifar10, conv1", 24, 3, 5, 64, "same"}, {"cifar10, conv2", 12, 64, 5, 64, "same"}, {"mnist_two_heads, conv2d", 28, 1, 3, 32, "valid"}, {"mnist_two_heads, conv2d_1", 13, 32, 3, 64, "valid"}, {"one tap", 16, 48, 1, 80, "same"}}) {
    const std::int64_t made = std::string(f.padding) == "same" ? f.size : f.size - f.window + 1;
    const CaseInput x = real({kBatch, f.size, f.size, f.in}), filter = real({f.window, f.window, f.in, f.out}), y = real({kBatch, made, made, f.out});
    const Attributes attributes = {{"strides", Integers{1, 1}}, {"padding", f.padding}};
    check("conv2d", f.name, attributes, {x, filter}, y.type, 32);
    check("conv2d_input_gradient", f.name, attributes, {y, filter, x}, x.type, 32);
    check("conv2d_filter_gradient", f.name, attributes, {x, y, filter}, filter.type, 32);
  }
  for (DType t : {f32, bf16}) {
    const CaseInput a{{t, {kBatch, 384}}}, b{{t, {384, 320}}}, y{{t, {kBatch, 320}}};
    check("matmul", "rows", {}, {a, b}, y.type, 2048);
    check("matmul", "long sums", {{"equation", "bk,bn->kn"}}, {a, y}, b.type, 2048);
  }
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

/// A kernel that gives zeros gives the same ones everywhere: what steps of a graph for training must have moved of a state, and have not.
std::vector<std::string> unmoved(const Graph& training, const State& before, const State& after) {
  std::vector<std::string> out;
  for (const auto& [id, update] : training.updates)
    if (const Node& n = training.node(id); is_float(n.types[0].dtype) && n.types[0].shape.size() > 1 && after.at(n.name) == before.at(n.name)) out.push_back(n.name);
  return out;
}

class GpuBits : public Gpu {};
class GpuStrategies : public Gpu, public testing::WithParamInterface<std::pair<std::string, DType>> {};

std::vector<std::pair<std::string, DType>> nets_here() {
  if (!machine().real) return {{"decay", f32}, {"batch_norm", f16}};
  std::vector<std::pair<std::string, DType>> out = {{"attention", bf16}, {"batch_norm", f16}, {"embedding", bf16}};
  for (const std::string& name : names_of_nets()) out.emplace_back(name, f32);
  return out;
}

double distance(const State& a, const State& b) {
  double out = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, value] : b) out = std::max(out, a.contains(name) ? test::distance(a.at(name), value) : INFINITY);
  return out;
}

/// Updates, joins and moves are the CPU's, so that variables may lie on the host. Towers on the CPU only come near.
TEST_P(GpuStrategies, give_the_bits_of_one_gpu) {
  const auto& [name, precision] = GetParam();
  Graph graph = without_requests(built(name));
  graph.precision = precision;
  SessionOptions no_graphs = options();
  no_graphs.cuda_graphs = false;
  const Strategy one = to_strategy(Single{.device = parse_device("gpu:0"), .towers = 4, .threads = 1});
  const State want = trained(graph, one, options(), 7, 3);
  EXPECT_THAT(unmoved(run_passes(training_passes(), graph), trained(graph, one, options(), 7, 0), want), testing::IsEmpty());
  EXPECT_TRUE(trained(graph, one, no_graphs, 7, 3) == want) << "without CUDA graphs";
  for (const Layout& l : layouts("gpu:0/0,gpu:0/1", "gpu:0/0,gpu:0/1,gpu:0/2,gpu:0/3", 4)) try {
      const State got = trained(graph, l.strategy, options(), 7, 3);
      if (l.bits && !l.on_cpu) EXPECT_TRUE(got == want) << l.name << " differs by " << distance(got, want);
      else EXPECT_LE(distance(got, want), precision == f32 ? 1e-4 : 0x1p-5) << l.name;
    } catch (const std::exception& e) {
      ADD_FAILURE() << l.name << ": " << e.what();
      if (!machine().alive()) FAIL() << "the GPU is lost since " << l.name;
    }
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuStrategies, testing::ValuesIn(nets_here()), [](const auto& info) { return info.param.first + "_" + std::string(name_of(info.param.second)); });

TEST_F(GpuBits, of_updates_are_the_cpus) {
  const std::vector<std::pair<const char*, Optimizer>> kinds = {{"sgd", Sgd{}}, {"momentum", Momentum{.nesterov = true}}, {"adam", Adam{.weight_decay = 0.01}}, {"adam, exact", Adam{.powers = "exact"}},
                                                                {"adamax", Adamax{}}, {"rmsprop", Rmsprop{}}, {"adagrad", Adagrad{}}, {"adadelta", Adadelta{}}, {"lion", Lion{}}};
  for (const auto& [kind, optimizer] : kinds) {
    Builder b("updates");
    Value w = b.variable("w", {1003}), scale = b.variable("scale", {1}), x = b.input("x", f32, {kBatch, 1003});  // two, in one launch
    b.minimize(reduce_sum(reduce_sum(x * w, {.axes = {1}})) + reduce_sum(scale), optimizer);
    Graph graph = std::move(b).build();
    auto on = [&](const char* device) { return trained(graph, to_strategy(Single{.device = parse_device(device), .towers = 2, .threads = 1}), options(), 4, often(50, 3)); };
    EXPECT_TRUE(on("gpu:0") == on("cpu:0")) << kind;
  }
}

/// Several threads copy feeds of some MiB to where the GPU reads them.
TEST_F(GpuBits, of_large_feeds_arrive) {
  Builder b("large");
  b.output(identity(b.input("x", f32, {kBatch, 1000003}) * 2.0, "y"));
  Session session(std::move(b).build(), Single{.device = parse_device("gpu:0")}, options());
  HostTensor x(f32, {5, 1000003});
  for (std::size_t i = 0; i < x.data<float>().size(); ++i) x.data<float>()[i] = static_cast<float>(i % 65521);
  for (int k = 0; k < 3; ++k) {
    x.data<float>()[0] = static_cast<float>(k);
    const Results got = session.predict({{"x", x}}, {"y"});
    for (std::size_t i = 0; i < x.data<float>().size(); ++i) ASSERT_EQ(got["y"].data<float>()[i], 2 * x.data<float>()[i]) << i;
  }
}

class GpuRepeats : public Gpu, public testing::WithParamInterface<std::pair<std::string, GraphPrecision>> {};

/// Attention of halves over several tiles of keys, which together make a gradient of the queries.
Settings settings_of(const std::string& net, const GraphPrecision& precision) {
  if (net == "mobilenet_v2") return {{"alpha", 0.35}, {"image", 96}};
  return is_half(precision.dtype) ? Settings{{"length", 512}} : Settings{};
}

/// Twenty times from the same state in one session, and in two more, since these choose their kernels anew.
TEST_P(GpuRepeats, give_the_same_bits) {
  const auto& [net, precision] = GetParam();
  Graph graph = net_named(net).build(machine().library->ops, settings_of(net, precision));
  graph.precision = precision;
  auto session = [&] { return Session(graph, Mirrored{.devices = parse_devices("gpu:0/0,gpu:0/1"), .towers = 4}, options()); };
  auto after = [&](Session& s) {
    for (int step = 0; step < 3; ++step) s.step(synthetic_feeds(s.graph(), often(32, 4)));
    return s.state();
  };
  Session one = session();
  const State begin = one.state(), want = after(one);
  EXPECT_THAT(unmoved(one.training_graph(), begin, want), testing::IsEmpty());
  for (int k = 1; k < often(20, 3); ++k) {
    one.load_state(begin);
    EXPECT_TRUE(after(one) == want) << "run " << k;
  }
  for (int k = 0; k < 2; ++k) {
    Session fresh = session();
    EXPECT_TRUE(after(fresh) == want) << "session " << k;
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuRepeats, testing::ValuesIn(machine().real ? std::vector<std::pair<std::string, GraphPrecision>>{{"mnist_cnn", f32}, {"cifar10", f32}, {"cifar10", tf32}, {"transformer", f32}, {"transformer", tf32}, {"transformer", bf16}, {"mobilenet_v2", f32}}
                                                                   : std::vector<std::pair<std::string, GraphPrecision>>{{"mlp", f32}}),
                         [](const auto& info) { return info.param.first + "_" + std::string(name_of(info.param.second)); });

class GpuMemory : public Gpu {};

/// The driver takes and gives in steps of up to 2 MiB.
TEST_F(GpuMemory, does_not_shrink_over_a_thousand_steps) {
  Session session(net_named("mlp").build(machine().library->ops), Single{.device = parse_device("gpu:0")}, options());
  const auto feeds = synthetic_feeds(session.graph(), often(64, 2));
  std::size_t before = 0;
  for (int k = 0; k < often(1020, 8); ++k) {
    session.step(feeds);
    if (k == often(19, 3)) before = machine().free_bytes();
  }
  const std::size_t after = machine().free_bytes();
  std::cout << "free before " << before << ", after " << after << " bytes\n";
  EXPECT_GE(after + (2 << 20), before);
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
