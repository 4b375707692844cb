// Kernels of cuDNN and cuBLASLt without a GPU: what they are told is computed on the host beside the references, and cuDNN makes a plan of it for a described device.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/ops/cuda/gemm_internal.h>
#include <belfry/ops/cuda_kernels.h>
#if __has_include(<cudnn.h>)
#include <belfry/ops/cuda/cudnn_api_internal.h>
#endif

#include "cudnn_on_host.h"
#include "described_gpu.h"
#include "kernel_case.h"

namespace belfry::test {
namespace {

using namespace cudnn;

/// All its engines fit in what the plan reserves, repeat their bits, and multiply f32 as f32 (a tensor core would round it).
void expect_engines(const Sequence& s, const std::string& what) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  std::size_t runs = 0;
  for (const auto& step : s.steps) runs += std::holds_alternative<Run>(step);
  std::vector<std::unique_ptr<Engine>> engines = engines_of(s, target);
  EXPECT_EQ(engines.size(), runs) << what;
  for (const auto& e : engines) {
    EXPECT_LE(e->facts().scratch_bytes, s.engine_bytes) << what << ": " << e->facts().name;
    EXPECT_TRUE(e->facts().deterministic) << what << ": " << e->facts().name;
    EXPECT_FALSE(e->facts().rounds_inputs || (e->facts().tensor_cores && what.find("conv") != std::string::npos)) << what << ": " << e->facts().name;
  }
}

Attributes windows(Integers strides, const char* padding, Integers dilations = {1, 1}, std::int64_t groups = 1) {
  return {{"strides", std::move(strides)}, {"padding", padding}, {"dilations", std::move(dilations)}, {"groups", groups}};
}
Attributes pools(Integers window, Integers strides, const char* padding) { return {{"window", std::move(window)}, {"strides", std::move(strides)}, {"padding", padding}}; }

/// Convolutions by the forward's attributes: x, filter, y; each in three directions.
struct ConvCase {
  const char* what;
  Shape x, filter, y;
  Attributes attributes;
};
const ConvCase kConvs[] = {
    {"one tap", {kBatch, 4, 4, 8}, {1, 1, 8, 12}, {kBatch, 4, 4, 12}, windows({1, 1}, "valid")},
    {"one tap, every second pixel", {kBatch, 5, 5, 8}, {1, 1, 8, 12}, {kBatch, 3, 3, 12}, windows({2, 2}, "valid")},
    {"padding that is larger behind", {kBatch, 8, 7, 4}, {3, 3, 4, 8}, {kBatch, 4, 4, 8}, windows({2, 2}, "same")},
    {"taps apart", {kBatch, 9, 9, 4}, {3, 2, 4, 8}, {kBatch, 5, 7, 8}, windows({1, 1}, "valid", {2, 2})},
    {"groups", {kBatch, 6, 6, 8}, {3, 3, 4, 16}, {kBatch, 6, 6, 16}, windows({1, 1}, "same", {1, 1}, 2)},
    {"a group per channel", {kBatch, 6, 6, 8}, {3, 3, 1, 8}, {kBatch, 3, 3, 8}, windows({2, 2}, "same", {1, 1}, 8)}};

struct Named {
  std::string what;
  KernelCase one;
};
std::vector<Named> cases() {
  std::vector<Named> out;
  for (const ConvCase& c : kConvs) {
    auto add = [&](const char* op, std::vector<TensorType> inputs) { out.push_back({std::string(op) + ", " + c.what, {"cudnn", op, std::move(inputs), c.attributes}}); };
    add("conv2d", {real(c.x), real(c.filter)});
    add("conv2d_input_gradient", {real(c.y), real(c.filter), real(c.x)});
    add("conv2d_filter_gradient", {real(c.x), real(c.y), real(c.filter)});
  }
  out.push_back({"conv2d_transpose", {"cudnn", "conv2d_transpose", {real({kBatch, 3, 3, 8}), real({3, 3, 4, 8})}, windows({2, 2}, "same")}});
  for (const char* padding : {"same", "valid"}) {
    std::int64_t n = std::string(padding) == "same" ? 4 : 3;
    out.push_back({std::string("avg_pool2d, ") + padding, {"cudnn", "avg_pool2d", {real({kBatch, 7, 8, 4})}, pools({3, 3}, {2, 2}, padding)}});
    out.push_back({std::string("avg_pool2d_gradient, ") + padding, {"cudnn", "avg_pool2d_gradient", {real({kBatch, n, n, 4}), real({kBatch, 7, 8, 4})}, pools({3, 3}, {2, 2}, padding)}});
    out.push_back({std::string("max_pool2d, ") + padding, {"cudnn", "max_pool2d", {real({kBatch, 7, 8, 4})}, pools({3, 2}, {2, 2}, padding)}});
  }
  const TensorType channel = real({8});
  out.push_back({"batch_norm", {"cudnn", "batch_norm", {real({kBatch, 4, 3, 8}), channel, channel, channel, channel}, {{"epsilon", 1e-3}, {"sync", false}}}});
  out.push_back({"batch_norm of rows", {"cudnn", "batch_norm", {real({kBatch, 8}), channel, channel, channel, channel}, {{"epsilon", 1e-3}, {"sync", false}}}});
  out.push_back({"batch_norm_gradient", {"cudnn", "batch_norm_gradient", {real({kBatch, 4, 3, 8}), channel, channel, channel, channel, real({kBatch, 4, 3, 8})}, {{"epsilon", 1e-3}, {"sync", false}}}});
  return out;
}

TEST(Cudnn, ComputesWhatTheReferencesDo) {
  for (const Named& c : cases()) {
    Asked a(c.one);
    if (a.request.op == "max_pool2d") a.request.wanted[1] = false;
    expect_as_reference(sequence_of(a.request), a.request, a.inputs, c.what);
  }
}

TEST(Cudnn, HasEnginesWithinTheReserve) {
  for (const Named& c : cases()) {
    if (c.what.find("valid") != std::string::npos || c.what == "batch_norm of rows") continue;  // as the others, and long to compile
    Asked a(c.one);
    if (a.request.op == "max_pool2d") a.request.wanted[1] = false;
    expect_engines(sequence_of(a.request), c.what);
  }
}

TEST(Cudnn, ComputesWhatIsLeftOutOfBatchNorm) {
  const TensorType channel = real({8});
  Asked forward({"cudnn", "batch_norm", {real({kBatch, 4, 3, 8}), channel, channel, channel, channel}, {{"epsilon", 1e-3}, {"sync", false}}});
  forward.request.wanted = {true, false, true, false};
  expect_as_reference(sequence_of(forward.request), forward.request, forward.inputs, "statistics that nobody reads");
  // Without gamma: as with one of ones.
  Asked backward({"cudnn", "batch_norm_gradient", {real({kBatch, 4, 3, 8}), channel, channel, channel, channel, real({kBatch, 4, 3, 8})}, {{"epsilon", 1e-3}, {"sync", false}}});
  std::fill(backward.inputs[1].data<float>().begin(), backward.inputs[1].data<float>().end(), 1.0f);
  std::vector<HostTensor> wanted = by_reference(backward.request, backward.inputs);
  backward.request.inputs[1] = {f32, {0}};
  backward.request.wanted = {true, true, false};
  std::vector<HostTensor> got = on_host(sequence_of(backward.request), backward.request, backward.inputs);
  for (std::size_t i : {0u, 1u}) EXPECT_LT(distance(got[i], wanted[i]), 2e-5) << i;
}

/// What the table of the backend says.
std::string refusal(const KernelRequest& r) {
  auto kernels = kernels_of(kernels_of_rooms(), std::make_shared<CudaToolkit>());
  for (const Kernel& k : kernels)
    if (k.op == r.op && Leeway().covers(k.leeway)) return k.supports(r).reason;
  return "no kernel";
}

TEST(Cudnn, RefusesWithTheReason) {
  if (!built()) GTEST_SKIP() << "Belfry was built without cuDNN's headers";
  Attributes plain = windows({1, 1}, "valid"), apart = pools({2, 2}, {2, 2}, "valid");
  // Five rows in windows of two: two rows whether the taps are apart or not, so that only the refusal keeps them from being taken for each other.
  apart.set("dilations", Integers{2, 2});
  Asked pooled({"", "max_pool2d", {real({kBatch, 5, 5, 2})}, apart});
  pooled.request.wanted[1] = false;
  EXPECT_EQ(refusal(pooled.request), "cuDNN's pools take no dilations");
  EXPECT_EQ(refusal(Asked({"", "avg_pool2d", {real({kBatch, 5, 5, 2})}, apart}).request), "cuDNN's pools take no dilations");
  EXPECT_EQ(refusal(Asked({"", "conv2d", {{f64, {kBatch, 4, 4, 2}}, {f64, {3, 3, 2, 2}}}, plain}).request), "it takes f32 and halves alone, and one of its tensors is f64");
  Asked empty({"", "conv2d", {real({kBatch, 4, 4, 2}), real({3, 3, 2, 2})}, plain});
  empty.request.inputs[0].shape[0] = empty.request.outputs[0].shape[0] = 0;
  EXPECT_EQ(refusal(empty.request), "there are no elements");
  EXPECT_THAT(refusal(Asked({"", "max_pool2d", {real({kBatch, 4, 4, 2})}, pools({2, 2}, {}, "valid")}).request), testing::StartsWith("somebody reads the index"));
  Asked one({"", "batch_norm", {real({kBatch, 8}), real({8}), real({8}), real({8}), real({8})}, {{"epsilon", 1e-3}, {"sync", false}}});
  one.request.inputs[0].shape[0] = one.request.outputs[0].shape[0] = 1;
  EXPECT_THAT(refusal(one.request), testing::StartsWith("a channel has one element"));
}

TEST(Cudnn, TakesAnotherEngineWhereTheFirstDoesNotFit) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  Sequence s = sequence_of(Asked({"", "conv2d", {real({32, 56, 56, 64}), real({3, 3, 64, 64})}, windows({1, 1}, "same")}).request);
  EngineFacts roomy = engines_of(s, target).at(0)->facts();
  EXPECT_GT(roomy.scratch_bytes, 0);
  s.engine_bytes = roomy.scratch_bytes - 1;
  EngineFacts tight = engines_of(s, target).at(0)->facts();
  EXPECT_LT(tight.scratch_bytes, roomy.scratch_bytes);
  EXPECT_NE(tight.name, roomy.name);
}

/// Halves as they are, into sums of f32: for every form that is not refused there is an engine that repeats its bits, on both architectures.
TEST(Cudnn, TakesHalvesAsTheyAre) {
  std::string why;
  std::vector<std::shared_ptr<Target>> targets = {described(why), described(why, 80)};
  if (!targets[0]) GTEST_SKIP() << why;
  int taken = 0;
  for (const ConvCase& c : kConvs)
    for (DType t : {bf16, f16})
      for (bool wide : {false, true}) {
        auto add = [&](const char* op, std::vector<Shape> shapes) {
          Attributes attributes = c.attributes;
          attributes.set("wide", wide);
          KernelCase one{"cudnn", op, {}, attributes};
          for (Shape& s : shapes) one.inputs.push_back({t, std::move(s)});
          Asked asked(one);
          const Sequence s = sequence_of(asked.request);
          const std::string what = fmt::format("{} of {}, {}{}", op, name_of(t), c.what, wide ? ", wide" : "");
          if (!s.refusal.empty()) return;
          ++taken;
          for (const auto& target : targets) try {
              if (t == f16 && target != targets[0]) continue;
              // Gradients of inputs in f32 are compiled at run time, for seconds each.
              if (wide && std::string_view(op) == "conv2d_input_gradient" && (t == f16 || (target != targets[0] && &c != &kConvs[2]))) continue;
              for (const auto& e : engines_of(s, target)) {
                EXPECT_TRUE(e->facts().deterministic && !e->facts().rounds_inputs) << what << ": " << e->facts().name;
                EXPECT_LE(e->facts().scratch_bytes, s.engine_bytes) << what;
              }
            } catch (const DeviceError& e) {
              ADD_FAILURE() << what << (target == targets[0] ? ", sm_90: " : ", sm_80: ") << e.what();
            }
        };
        add("conv2d", {c.x, c.filter});
        add("conv2d_input_gradient", {c.y, c.filter, c.x});
        add("conv2d_filter_gradient", {c.x, c.y, c.filter});
      }
  EXPECT_EQ(taken, 6 * 3 * 2 + (4 * 2 + 6) * 2) << "in f32 only the four forms without groups, but gradients of filters";
}

/// Gradients of halves in f32: the copy or cast that ends them gives what the gradients alone do.
TEST(Cudnn, ComputesWhatACopyEnds) {
  for (const ConvCase& c : kConvs)
    for (const auto& [op, shapes] : {std::pair{"conv2d_input_gradient", std::vector{c.y, c.filter, c.x}}, {"conv2d_filter_gradient", {c.x, c.y, c.filter}}}) {
      KernelCase halves{"cudnn", op, {}, c.attributes}, whole = halves;
      halves.attributes.set("wide", true);
      for (const Shape& s : shapes) halves.inputs.push_back({bf16, s}), whole.inputs.push_back(real(s));
      const Sequence s = sequence_of(Asked(halves).request);
      Asked asked(whole);
      if (c.attributes.integer("groups") > 1 && op == std::string("conv2d_input_gradient")) EXPECT_EQ(s.refusal, "cuDNN has no engine that makes f32 of halves here");
      else expect_as_reference(s, asked.request, asked.inputs, fmt::format("{}, {}", op, c.what));
    }
}

TEST(Cudnn, MakesF32OfHalvesWithEvenChannelsAlone) {
  for (const auto& [in, out] : {std::pair{3, 8}, {8, 3}}) {
    Attributes wide = windows({1, 1}, "same");
    wide.set("wide", true);
    const TensorType x{bf16, {kBatch, 6, 6, in}}, filter{bf16, {3, 3, in, out}}, y{bf16, {kBatch, 6, 6, out}};
    const std::string refusal = "cuDNN has no engine that makes f32 of halves whose channels are not even";
    EXPECT_EQ(sequence_of(Asked({"", "conv2d", {x, filter}, wide}).request).refusal, in == 3 ? refusal : "");
    EXPECT_EQ(sequence_of(Asked({"", "conv2d_input_gradient", {y, filter, x}, wide}).request).refusal, refusal);
    EXPECT_EQ(sequence_of(Asked({"", "conv2d_filter_gradient", {x, y, filter}, wide}).request).refusal, "") << "cast behind it";
  }
}

TEST(Cudnn, LeavesOutAnEngineThatMisreadsPadding) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  for (const auto& [padding, height] : {std::pair{"same", 4}, {"same", 3}}) {  // a row behind, and one on both sides
    const Asked asked({"", "conv2d_filter_gradient", {real({kBatch, height, 3, 2}), real({kBatch, 2, 2, 2}), real({3, 3, 2, 2})}, windows({2, 2}, padding)});
    bool first = false;
    for (const std::string& name : engine_names(sequence_of(asked.request), target)) first = first || name.starts_with("eng1{");
    EXPECT_EQ(first, height == 3);
  }
}

/// Norms of halves read and write them as they are; statistics and parameters are f32.
TEST(Cudnn, TakesHalvesInNorms) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  const TensorType channel = real({8}), data{bf16, {kBatch, 4, 4, 8}};
  const Attributes norm = {{"epsilon", 1e-3}, {"sync", false}};
  for (const KernelCase& c : {KernelCase{"", "batch_norm", {data, channel, channel, channel, channel}, norm}, KernelCase{"", "batch_norm_gradient", {data, channel, channel, channel, channel, data}, norm}}) {
    Asked asked(c);
    const Sequence s = sequence_of(asked.request);
    ASSERT_EQ(s.refusal, "") << c.op;
    for (const SequenceKernel& k : kernels_of_rooms()) EXPECT_TRUE(k.op != c.op || k.halves) << c.op;
    for (const auto& step : s.steps) {
      const auto* r = std::get_if<cudnn::Run>(&step);
      for (std::size_t i = 0; r && i < r->graph.tensors.size(); ++i) EXPECT_EQ(r->graph.tensors[i].dtype == bf16, r->graph.tensors[i].dims[0] == kRows) << c.op << ", tensor " << i;
    }
    expect_engines(s, c.op);
  }
  // Whole runs of 16 bytes alone.
  for (const auto& [type, channels] : {std::pair{f32, 10}, {f32, 1}, {bf16, 12}}) {
    const TensorType few{type, {kBatch, 4, 4, channels}}, each = real({channels});
    const std::string refusal = fmt::format("{} channels are no multiple of {}, which cuDNN's norms read at a time", channels, type == f32 ? 4 : 8);
    EXPECT_EQ(sequence_of(Asked(KernelCase{"", "batch_norm", {few, each, each, each, each}, norm}).request).refusal, refusal);
    EXPECT_EQ(sequence_of(Asked(KernelCase{"", "batch_norm_gradient", {few, each, each, each, each, few}, norm}).request).refusal, refusal);
  }
  EXPECT_EQ(sequence_of(Asked(KernelCase{"", "batch_norm_gradient", {data, channel, channel, channel, channel, data}, {{"activation", "relu"}}}).request).refusal, "dy is of an activation behind it");
  Asked other(KernelCase{"", "batch_norm", {data, channel, channel, channel, channel}, norm});
  other.request.inputs[1].dtype = bf16;
  EXPECT_EQ(sequence_of(other.request).refusal, "its data are of several dtypes, or its parameters are not f32");
}

/// Its engines for pools write f32 behind the end of halves.
TEST(Cudnn, PoolsF32AloneAndBehindGeneratedKernels) {
  if (!built()) GTEST_SKIP() << "Belfry was built without cuDNN's headers";
  const KernelTable table = cuda_kernels(std::make_shared<CudaToolkit>());
  for (DType t : {f32, bf16, f16})
    for (const std::string op : {"avg_pool2d", "avg_pool2d_gradient", "max_pool2d"}) {
      const TensorType x{t, {kBatch, 4, 4, 16}}, y{t, {kBatch, 2, 2, 16}};
      Asked asked(KernelCase{"", op, op == "avg_pool2d_gradient" ? std::vector{y, x} : std::vector{x}, pools({3, 3}, {2, 2}, "same")});
      if (op == "max_pool2d") asked.request.wanted[1] = false;
      const std::string room = op == "max_pool2d" ? op : "avg_pool2d";
      EXPECT_EQ(table.choose(asked.request).name, "nvrtc_" + room) << op << " of " << name_of(t);
      EXPECT_EQ(table.support("cudnn_" + room, asked.request).reason, t == f32 ? "" : "it computes no halves itself") << op;
    }
}

/// Those that may round or give up their bits come before those that may not, find engines in the same reserve, and use what is left to them where cuDNN forecasts that it is faster.
TEST(Cudnn, TakesTheLeewayThatIsLeft) {
  std::string why;
  const std::vector<std::shared_ptr<Target>> targets = {described(why), described(why, 80)};
  if (!targets[0]) GTEST_SKIP() << why;
  auto with = [](const KernelRequest& r, const Leeway& leeway) {
    for (const SequenceKernel& k : conv2d_sequences())
      if (k.op == r.op)
        for (const SequenceKernel& each : with_leeways(k))
          if (each.leeway.tf32 == leeway.tf32 && each.leeway.nondeterministic == leeway.nondeterministic) return each.sequence(r);
    return none("no such kernel");
  };
  const Leeway rounding{.tf32 = true}, any_order{.nondeterministic = true};
  int met = 0;
  for (const ConvCase& c : kConvs)
    for (const auto& [op, shapes] : {std::pair{"conv2d", std::vector{c.x, c.filter}}, {"conv2d_input_gradient", {c.y, c.filter, c.x}}, {"conv2d_filter_gradient", {c.x, c.y, c.filter}}})
      for (const Leeway& leeway : {rounding, any_order, Leeway{true, true}}) {
        KernelCase one{"cudnn", op, {}, c.attributes};
        for (const Shape& s : shapes) one.inputs.push_back(real(s));
        const Sequence s = with(Asked(one).request, leeway);
        if (!s.refusal.empty()) continue;
        ++met;
        for (const auto& target : targets)
          for (const auto& e : engines_of(s, target)) {
            EXPECT_LE(e->facts().scratch_bytes, s.engine_bytes) << op << ", " << c.what;
            EXPECT_TRUE(e->facts().deterministic || leeway.nondeterministic) << op << ", " << c.what;
            EXPECT_TRUE((!e->facts().tensor_cores || leeway.tf32) && !e->facts().rounds_inputs) << op << ", " << c.what;
          }
      }
  EXPECT_EQ(met, 6 * 3 + 5 * 2) << "in another order only gradients of filters that are no products";
  const Shape x{32, 28, 28, 64}, w{3, 3, 64, 64}, point{1, 1, 64, 64};
  EXPECT_EQ(with(Asked({"", "conv2d_filter_gradient", {real(x), real(x), real(point)}, windows({1, 1}, "same")}).request, any_order).refusal, "its product repeats its bits anyway");
  for (bool tf32 : {false, true}) EXPECT_EQ(std::get<Multiply>(with(Asked({"", "conv2d", {real(x), real(point)}, windows({1, 1}, "same")}).request, {.tf32 = tf32}).steps.at(0)).product.tf32, tf32);
  EXPECT_EQ(with(Asked({"", "conv2d", {{bf16, x}, {bf16, w}}, windows({1, 1}, "same")}).request, rounding).refusal, "it multiplies no f32");
  const Asked forward({"", "conv2d", {real(x), real(w)}, windows({1, 1}, "same")}), backward({"", "conv2d_filter_gradient", {real(x), real(x), real(w)}, windows({1, 1}, "same")});
  for (const auto& target : targets) {
    for (const Asked* a : {&forward, &backward}) EXPECT_TRUE(engines_of(with(a->request, rounding), target).at(0)->facts().tensor_cores);
    EXPECT_FALSE(engines_of(with(backward.request, any_order), target).at(0)->facts().deterministic);
  }
}

/// Plans put scratch on multiples of 64 bytes; workspaces begin on multiples of 256, and end before scratch does.
TEST(Cudnn, HasRoomToAlignItsWorkspace) {
  Sequence s = sequence_of(Asked({"", "conv2d", {real({kBatch, 6, 6, 4}), real({3, 3, 4, 8})}, windows({1, 1}, "same")}).request);
  alignas(256) std::byte memory[512];
  for (std::int64_t at : {0, 64, 128, 192}) {
    const std::byte* workspace = workspace_in(memory + at);
    EXPECT_EQ((workspace - memory) % 256, 0) << at;
    EXPECT_LE(workspace - (memory + at) + s.own_bytes + s.engine_bytes, s.scratch_bytes()) << at;
    EXPECT_LE(workspace - (memory + at) + cublas_lt::kWorkspaceBytes, cublas_lt::kScratchBytes) << at;
    EXPECT_GE(workspace, memory + at);
  }
}

/// What a plan may name: each is found again by its name, and none that cuDNN does not name.
TEST(Cudnn, FindsTheEngineThatAPlanNames) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  Sequence s = sequence_of(Asked({"", "conv2d", {real({32, 28, 28, 32}), real({3, 3, 32, 64})}, windows({1, 1}, "same")}).request);
  const std::vector<std::string> names = engine_names(s, target);
  ASSERT_GT(names.size(), 1u);
  EXPECT_EQ(names[0], engines_of(s, target).at(0)->facts().name);
  const auto run = std::find_if(s.steps.begin(), s.steps.end(), [](const auto& step) { return std::holds_alternative<cudnn::Run>(step); });
  const cudnn::Graph& graph = std::get<cudnn::Run>(*run).graph;
  for (const std::string& name : names) EXPECT_EQ(find(target, graph, {.scratch_bytes = s.engine_bytes, .engine = name})->facts().name, name);
  EXPECT_THAT([&] { find(target, graph, {.scratch_bytes = s.engine_bytes, .engine = "eng999{}"}); },
              testing::Throws<DeviceError>(testing::Property(&DeviceError::what, testing::HasSubstr("does not name the engine eng999{} for it here; derive the plan anew"))));
  EXPECT_THAT([&] { find(target, graph, {.scratch_bytes = -1, .engine = names[1]}); }, testing::Throws<DeviceError>(testing::Property(&DeviceError::what, testing::HasSubstr("of 1 that it names"))));
}

#if __has_include(<cudnn.h>)
std::string& ends() {
  static std::string text;
  return text;
}

/// Plans of engines hold their handle.
TEST(Cudnn, EndsPlansBeforeTheirHandle) {
  Api api{};
  api.cudnnBackendCreateDescriptor = [](cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t* out) {
    *out = reinterpret_cast<cudnnBackendDescriptor_t>(&ends());
    return CUDNN_STATUS_SUCCESS;
  };
  api.cudnnBackendDestroyDescriptor = [](cudnnBackendDescriptor_t) { return ends() += "plan ", CUDNN_STATUS_SUCCESS; };
  api.cudnnDestroy = [](cudnnHandle_t) { return ends() += "handle ", CUDNN_STATUS_SUCCESS; };
  {
    TargetImpl target(api);
    target.handle = reinterpret_cast<cudnnHandle_t>(&ends());
    target.plans["a form"] = std::make_shared<const Plan>(Plan{Descriptor(api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), {}});
  }
  EXPECT_EQ(ends(), "plan handle ");
}
#endif

TEST(Cudnn, FiltersGradientsAreTurnedAndWidenedInOneStep) {
  for (bool wide : {false, true}) {
    Attributes attributes = windows({1, 1}, "same");
    attributes.set("wide", wide);
    const Sequence s = sequence_of(Asked({"", "conv2d_filter_gradient", {{bf16, {8, 6, 6, 16}}, {bf16, {8, 6, 6, 32}}, {bf16, {3, 3, 16, 32}}}, attributes}).request);
    ASSERT_EQ(s.steps.size(), 2u);
    EXPECT_EQ(std::get<Transpose>(s.steps[1]).dtype, bf16);
    EXPECT_EQ(std::get<Transpose>(s.steps[1]).made, wide ? f32 : bf16);
  }
}

TEST(Cudnn, SaysWhatItDoesNotTake) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  Sequence s = sequence_of(Asked({"", "conv2d", {real({8, 6, 6, 4}), real({3, 3, 4, 8})}, windows({1, 1}, "same")}).request);
  for (auto& step : s.steps)
    if (auto* r = std::get_if<cudnn::Run>(&step)) r->graph.tensors[2].dims[2] = 9;
  EXPECT_THAT([&] { engines_of(s, target); }, testing::Throws<DeviceError>(testing::Property(&DeviceError::what, testing::HasSubstr("cuDNN: cudnnBackend"))));
}

}  // namespace
}  // namespace belfry::test
