// cuDNN's attention without a GPU: what it is told is computed on the host beside the reference, and all that is taken finds an engine on every described device.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>
#if __has_include(<cudnn.h>)
#include <belfry/ops/cuda/cudnn_api_internal.h>
#endif

#include "cudnn_on_host.h"
#include "described_gpu.h"
#include "kernel_case.h"
#include "net_sequences.h"

namespace belfry::test {
namespace {

using namespace cudnn;

constexpr const char *kForward = "scaled_dot_product_attention", *kGradient = "scaled_dot_product_attention_gradient";

struct Form {
  Shape lead;
  std::int64_t queries, keys, width = 64, value_width = 64;
  bool causal = false;
  double scale = 0;
  bool behind = false;  ///< the last of `lead` behind the places
};

std::string to_text(const Form& f) { return fmt::format("{} x {} queries, {} keys of {}, {} features{}{}", to_string(std::span<const Dim>(f.lead)), f.queries, f.keys, f.width, f.value_width, f.causal ? ", causal" : "", f.behind ? ", heads behind" : ""); }

/// The inputs of the forward, or of the gradient; the logarithms of the sums stay f32.
KernelCase asked_for(const char* op, const Form& f, DType t) {
  auto with = [&](std::initializer_list<std::int64_t> last) {
    Shape out = f.lead;
    out.insert(out.end(), last.begin(), last.end());
    if (f.behind && last.size() == 2) std::swap(out[out.size() - 3], out[out.size() - 2]);
    return out;
  };
  KernelCase out{"cudnn", op, {{t, with({f.queries, f.width})}, {t, with({f.keys, f.width})}, {t, with({f.keys, f.value_width})}}, {{"causal", f.causal}, {"scale", f.scale}, {"layout", f.behind ? "bthk" : "bhtk"}}};
  const TensorType y{t, with({f.queries, f.value_width})};
  if (op == kGradient) out.inputs.insert(out.inputs.end(), {y, {f32, with({f.queries})}, y});
  return out;
}

/// Nobody reads the gradients of the scores.
Asked asked(const char* op, const Form& f, DType t = bf16) {
  Asked out(asked_for(op, f, t));
  if (op == kGradient) out.request.wanted[3] = false;
  return out;
}

/// Halves on the host are f32, so that the reference tells what is wrong from what is rounded.
TEST(CudnnAttention, ComputesWhatTheReferencesDo) {
  for (const Form& f : {Form{{kBatch, 3}, 4, 6, 8, 16}, Form{{kBatch, 3}, 6, 6, 8, 8, true}, Form{{kBatch}, 7, 3, 16, 8, true, 0.7}, Form{{}, 5, 4, 8, 8}, Form{{2, kBatch, 3}, 2, 2, 8, 8, true}, Form{{kBatch, 2}, 1, 9, 8, 8, false, 2},
                        Form{{kBatch, 3}, 4, 6, 8, 16, false, 0, true}, Form{{2, kBatch, 3}, 6, 5, 16, 8, true, 0, true}, Form{{kBatch}, 3, 2, 8, 8, false, 0, true}, Form{{kBatch, 1}, 4, 3, 8, 8, true, 0, true}})
    for (const char* op : {kForward, kGradient}) {
      Asked halves = asked(op, f), whole = asked(op, f, f32);
      expect_as_reference(sequence_of(halves.request), whole.request, whole.inputs, fmt::format("{}: {}", op, to_text(f)));
      // What nobody reads is computed elsewhere, or not at all.
      for (std::size_t i = op == kForward; i < (op == kForward ? 2u : 3u); ++i) {
        halves.request.wanted[i] = whole.request.wanted[i] = false;
        expect_as_reference(sequence_of(halves.request), whole.request, whole.inputs, fmt::format("{} without output {}: {}", op, i, to_text(f)));
        halves.request.wanted[i] = whole.request.wanted[i] = true;
      }
    }
}

/// q, k and v in one value: (…, places, 3, heads, features).
Asked asked_packed(const char* op, const Shape& lead, std::int64_t places, std::int64_t heads, std::int64_t width, bool causal, DType t = bf16) {
  auto with = [&](std::initializer_list<Dim> last) {
    Shape out = lead;
    out.insert(out.end(), last);
    return out;
  };
  KernelCase c{"cudnn", op, {{t, with({places, 3, heads, width})}}, {{"causal", causal}}};
  const TensorType y{t, with({places, heads, width})};
  if (op != std::string("packed_attention")) c.inputs.insert(c.inputs.end(), {y, {f32, with({heads, places})}, y});
  Asked out(c);
  if (op != std::string("packed_attention")) out.request.wanted[1] = false;
  return out;
}

TEST(CudnnAttention, ComputesWhatThePackedReferencesDo) {
  for (auto [lead, heads, causal] : {std::tuple{Shape{kBatch}, 3, false}, {Shape{kBatch}, 1, true}, {Shape{2, kBatch}, 2, true}, {Shape{}, 2, false}})
    for (const char* op : {"packed_attention", "packed_attention_gradient"}) {
      Asked halves = asked_packed(op, lead, 5, heads, 8, causal), whole = asked_packed(op, lead, 5, heads, 8, causal, f32);
      // Halves of 2 bytes are f32 on the host: so are the parts' places.
      Sequence s = sequence_of(halves.request);
      for (auto& step : s.steps)
        for (Place& p : std::get<cudnn::Run>(step).places) p.past *= 2;
      expect_as_reference(s, whole.request, whole.inputs, fmt::format("{} of {} heads", op, heads));
    }
}

/// Sizes around the tiles of cuDNN's kernels, the widest that are taken, and many heads.
const Form kTaken[] = {{{2, 3}, 1, 200},        {{2, 3}, 7, 5},           {{2, 3}, 7, 5, 64, 64, true}, {{2, 3}, 127, 129},  {{2, 3}, 1024, 512},
                       {{2, 3}, 1024, 512, 64, 64, true}, {{2, 3}, 96, 96, 8, 8},   {{2, 3}, 96, 96, 24, 40},     {{2, 3}, 96, 96, 128, 8}, {{2, 3}, 96, 96, 8, 128},
                       {{2, 3}, 96, 96, 128, 128},        {{2, 3}, 96, 96, 128, 128, true}, {{}, 32, 32, 16, 16},  {{3, 2, 2}, 32, 32, 16, 16, true}, {{2048, 1}, 32, 32, 16, 16},
                       {{2, 3}, 7, 5, 64, 64, true, 0, true},     {{2, 3}, 127, 129, 64, 64, false, 0, true}, {{2, 3}, 1024, 512, 64, 64, true, 0, true}, {{2, 3}, 96, 96, 8, 128, false, 0, true},
                       {{2, 3}, 96, 96, 128, 8, true, 0, true},   {{2, 3}, 1, 200, 64, 64, false, 0, true},   {{3}, 32, 32, 16, 16, true, 0, true},       {{128, 8}, 128, 128, 64, 64, true, 0, true}};

void expect_engine(const Sequence& s, const std::shared_ptr<Target>& target, const std::string& what) {
  for (const auto& e : engines_of(s, target)) {
    EXPECT_LE(e->facts().scratch_bytes, s.engine_bytes) << what << ": " << e->facts().name;
    EXPECT_TRUE(e->facts().deterministic && !e->facts().rounds_inputs) << what << ": " << e->facts().name;
  }
}

/// Engines are compiled, for a third of a second each: one form in so many, unless BELFRY_EVERY_TEXT is set.
int one_in(int sm) { return std::getenv("BELFRY_EVERY_TEXT") ? 1 : sm == 90 ? 3 : 7; }

TEST(CudnnAttention, HasEnginesForAllThatItTakes) {
  std::string why;
  const std::map<int, std::shared_ptr<Target>> targets = {{80, described(why, 80)}, {90, described(why)}, {100, described(why, 100)}};
  if (!targets.at(90)) GTEST_SKIP() << why;
  int taken = 0;
  auto expect = [&](const char* op, const Form& f, DType t) {
    Asked a = asked(op, f, t);
    const Sequence s = sequence_of(a.request);
    ASSERT_EQ(s.refusal, "") << op << ": " << to_text(f);
    ++taken;
    for (const auto& [sm, target] : targets) try {
        if (taken % one_in(sm) != 0) continue;
        expect_engine(s, target, fmt::format("{} of {} on sm_{}: {}", op, name_of(t), sm, to_text(f)));
      } catch (const DeviceError& e) {
        ADD_FAILURE() << op << " on sm_" << sm << ", " << to_text(f) << ": " << e.what();
      }
  };
  for (const Form& f : kTaken)
    for (const char* op : {kForward, kGradient}) expect(op, f, taken % 4 < 2 ? bf16 : f16);
  for (const Form& f : {Form{{2, 3}, 96, 96, 136, 200, true}, Form{{2, 3}, 96, 96, 256, 256}}) expect(kForward, f, bf16);
  for (auto [places, heads, width] : {std::tuple{128, 8, 64}, {127, 3, 24}, {64, 1, 128}})
    for (const char* op : {"packed_attention", "packed_attention_gradient"})
      for (const auto& [sm, target] : targets) {
        const Asked a = asked_packed(op, {2}, places, heads, width, true);
        EXPECT_NO_THROW(expect_engine(sequence_of(a.request), target, fmt::format("{} of {} places on sm_{}", op, places, sm))) << op << ", " << places << " places on sm_" << sm;
      }
  // Without the logarithms, as predictions are made.
  Asked alone = asked(kForward, {{2, 3}, 96, 96});
  alone.request.wanted[1] = false;
  for (const auto& [sm, target] : targets) expect_engine(sequence_of(alone.request), target, fmt::format("no logarithms on sm_{}", sm));
  EXPECT_EQ(taken, 48);
}

/// Those that add to dq block by block have no room for the slopes of all pairs; no note of cuDNN's tells them apart.
TEST(CudnnAttention, TakesEnginesThatKeepTheSlopesAlone) {
  std::string why;
  if (!described(why)) GTEST_SKIP() << why;
  const Sequence s = sequence_of(asked(kGradient, {{2, 3}, 512, 256}).request);
  const cudnn::Graph& graph = std::get<cudnn::Run>(s.steps.at(0)).graph;
  EXPECT_EQ(graph.least_scratch_bytes, 2 * 6 * 512 * 256);
  for (int sm : {80, 90, 100}) {
    const auto engines = all(described(why, sm), graph);
    EXPECT_FALSE(engines.empty()) << sm;
    for (const EngineFacts& e : engines) EXPECT_GE(e.scratch_bytes, graph.least_scratch_bytes) << "sm_" << sm << ": " << e.name;
  }
  // A dq of f32 is added to where it lies.
  cudnn::Graph added = graph;
  added.tensors[graph.operations.back().tensors[2]].dtype = f32;
  const EngineFacts first = all(described(why), added).at(0);
  EXPECT_LT(first.scratch_bytes, graph.least_scratch_bytes);
  EXPECT_TRUE(first.deterministic) << "as cuDNN says";
  EXPECT_THAT([&] { find(described(why), added, {.scratch_bytes = s.engine_bytes, .engine = first.name}); },
              testing::Throws<DeviceError>(testing::Property(&DeviceError::what, testing::HasSubstr("of 1 that it names 1 are not deterministic"))));
}

/// Why f32 is the generated kernel's: what was not to be rounded finds no engine.
TEST(CudnnAttention, MultipliesF32OnTensorCoresAlone) {
  std::string why;
  auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  const Sequence s = sequence_of(asked(kForward, {{8, 4}, 128, 128}).request);
  cudnn::Graph g = std::get<cudnn::Run>(s.steps.at(0)).graph;
  for (cudnn::Tensor& t : g.tensors)
    if (is_half(t.dtype)) t.dtype = f32;
  std::vector<EngineFacts> engines = all(target, g);
  EXPECT_FALSE(engines.empty());
  for (const EngineFacts& e : engines) EXPECT_TRUE(e.tensor_cores) << e.name;
  EXPECT_THROW(find(target, g, {.scratch_bytes = 1 << 30}), DeviceError);
  EXPECT_NO_THROW(find(target, g, {.scratch_bytes = 1 << 30, .leeway = {.tf32 = true}}));
  // Of gradients it has none at all.
  g = std::get<cudnn::Run>(sequence_of(asked(kGradient, {{8, 4}, 128, 128}).request).steps.at(0)).graph;
  for (cudnn::Tensor& t : g.tensors)
    if (is_half(t.dtype)) t.dtype = f32;
  for (int sm : {80, 90, 100}) EXPECT_TRUE(all(described(why, sm), g).empty()) << sm;
}

/// Forward of f32 where it may be rounded: a kernel of its own name.
Sequence rounding(const KernelRequest& r) {
  for (const SequenceKernel& k : attention_sequences())
    if (k.name == "cudnn_attention_tf32" && k.op == r.op) return k.sequence(r);
  return none("no kernel");
}

TEST(CudnnAttention, RoundsF32WhereItMay) {
  for (const Form& f : {Form{{kBatch, 3}, 4, 6, 8, 16}, Form{{kBatch, 3}, 6, 5, 16, 8, true, 0, true}}) {
    Asked a = asked(kForward, f, f32);
    expect_as_reference(rounding(a.request), a.request, a.inputs, to_text(f));
  }
  EXPECT_EQ(rounding(asked(kForward, {{kBatch, 2}, 8, 8}).request).refusal, "it multiplies no f32");
  EXPECT_EQ(rounding(asked(kForward, {{kBatch, 2}, 8, 8, 12, 16}, f32).request).refusal, "12 and 16 features are not both multiples of 8, which cuDNN reads at a time");
  EXPECT_EQ(rounding(asked(kGradient, {{kBatch, 2}, 8, 8}, f32).request).refusal, "no kernel");
  std::string why;
  if (!described(why)) GTEST_SKIP() << why;
  for (int sm : {80, 90, 100})
    for (std::size_t i = 0; i < std::size(kTaken); i += static_cast<std::size_t>(one_in(sm))) {
      const Form& f = kTaken[i];
      const Sequence s = rounding(asked(kForward, f, f32).request);
      ASSERT_EQ(s.refusal, "") << to_text(f);
      EXPECT_TRUE(s.leeway.tf32);
      try {
        expect_engine(s, described(why, sm), fmt::format("sm_{}: {}", sm, to_text(f)));
      } catch (const DeviceError& e) {
        ADD_FAILURE() << "sm_" << sm << ", " << to_text(f) << ": " << e.what();
      }
    }
}

TEST(CudnnAttention, RefusesWithTheReason) {
  auto refusal = [](const char* op, const Form& f, DType t = bf16) { return sequence_of(asked(op, f, t).request).refusal; };
  for (const char* op : {kForward, kGradient}) {
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 8}), "");
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 8}, f32), "cuDNN multiplies f32 by tensor cores alone here, which round it");
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 8, 12, 16}), "12 and 16 features are not both multiples of 8, which cuDNN reads at a time");
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 8, 16, 4}), "16 and 4 features are not both multiples of 8, which cuDNN reads at a time");
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 9, 16, 16, true}), "no query sees the last keys, and cuDNN multiplies what they hold by 0");
    EXPECT_EQ(refusal(op, {{1, 65536}, 2, 2, 8, 8}), "it has more heads than cuDNN can launch");
    EXPECT_EQ(refusal(op, {{kBatch, 2}, 8, 0}), "there are no elements");
    for (DType t : {boolean, f32}) {
      KernelCase masked = asked_for(op, {{kBatch, 2}, 8, 8}, bf16);
      masked.inputs.push_back({t, {8, 8}});
      EXPECT_EQ(sequence_of(Asked(masked).request).refusal, "it has a mask, and cuDNN does not say that a query without keys gives 0, nor that padding stays out of the sums");
    }
    KernelCase wide = asked_for(op, {{kBatch, 2}, 8, 8}, bf16);
    wide.attributes.set("wide", true);
    EXPECT_EQ(sequence_of(Asked(wide).request).refusal, "what it makes of halves is f32");
  }
  EXPECT_EQ(refusal(kForward, {{kBatch, 2}, 8, 8, 264, 64}), "264 and 64 features are more than the 256 that cuDNN takes");
  EXPECT_EQ(refusal(kGradient, {{kBatch, 2}, 8, 8, 64, 136}), "64 and 136 features are more than the 128 that cuDNN takes");
  EXPECT_EQ(refusal(kGradient, {{kBatch, 2}, 1, 1}), "cuDNN takes no gradient of one query and one key");
  EXPECT_EQ(refusal(kGradient, {{32, 2}, 8192, 4096, 8, 8}), "it has more pairs of queries and keys than cuDNN counts");
  EXPECT_EQ(refusal(kForward, {{32, 2}, 8192, 4096, 8, 8}), "");
  EXPECT_EQ(sequence_of(Asked(asked_for(kGradient, {{kBatch, 2}, 8, 8}, bf16)).request).refusal, "somebody reads the gradients of the scores, which cuDNN keeps to itself");
}

#if __has_include(<cudnn.h>)
TEST(CudnnAttention, NeedsAVersionWithoutTheFault) {
  std::string why;
  if (!described(why)) GTEST_SKIP() << why;
  CudaToolkit toolkit;
  Api old = api(toolkit);
  const Sequence s = sequence_of(asked(kForward, {{2, 3}, 64, 64}).request);
  const cudnn::Graph& graph = std::get<cudnn::Run>(s.steps.at(0)).graph;
  EXPECT_TRUE(operation_graph(TargetImpl(old), graph, why)) << why;
  old.cudnnGetVersion = [] { return std::size_t{91501}; };
  EXPECT_FALSE(operation_graph(TargetImpl(old), graph, why));
  EXPECT_EQ(why, "cuDNN 9.15.1 has a fault in attention; install 9.16 or a later 9, or have the plan name nvrtc_attention_in_f32");
  EXPECT_FALSE(operation_graph(TargetImpl(old), std::get<cudnn::Run>(rounding(asked(kForward, {{2, 3}, 64, 64}, f32).request).steps.at(0)).graph, why));
  EXPECT_THAT(why, testing::EndsWith("or have the plan name nvrtc_attention"));
}
#endif

/// A training step of the language model in halves: both ops of every block.
TEST(CudnnAttention, TakesTheTransformers) {
  std::string why;
  const std::vector<std::shared_ptr<Target>> targets = {described(why, 80), described(why)};
  const SequencesOfNet net = sequences_of("transformer", bf16);
  for (const auto& [reason, n] : net.refused) EXPECT_THAT(reason, testing::Not(testing::HasSubstr("attention"))) << n;
  std::map<std::string, int> nodes;
  for (const auto& [what, form] : net.forms) {
    nodes[what.substr(0, what.find(' '))] += form.nodes;
    for (const auto& target : targets) EXPECT_TRUE(!target || engines_of(form.sequence, target).size() > 0) << what;
  }
  EXPECT_GE(nodes[kForward], 2);
  EXPECT_EQ(nodes[kForward], nodes[kGradient]);
}

}  // namespace
}  // namespace belfry::test
