// Generated kernels run on the host, held to the references: the cases of all rooms, and sizes that their forms need.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <limits>
#include <map>
#include <random>
#include <set>

#include <belfry/executor/device/faults.h>
#include <belfry/executor/joint_launch.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cuda/nvrtc_internal.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/gpu_kernel_names.h>
#include <belfry/ops/half_kernels_internal.h>

#include "awaited.h"
#include "gpu_cases.h"
#include "host_gpu.h"
#include "net_kernels.h"
#include "tables.h"

namespace belfry::test {
namespace {

/// All kernels of all cases, prepared on the host.
struct AllKernels {
  AllKernels() {
    for (const auto& def : ops.all()) {
      std::size_t before = awaited.size();
      await_all(table, *def, awaited);
      met[def->name] += static_cast<int>(awaited.size() - before);
    }
  }
  std::shared_ptr<HostGpu> host = std::make_shared<HostGpu>();
  KernelTable table = generated_kernels(host);
  OpSet ops = standard_ops();
  std::vector<Awaited> awaited;
  std::map<std::string, int> met;
};

/// What is read in packs is read one by one where its bytes do not lie by sixteen: the same bits.
TEST(GeneratedKernels, agree_with_the_references_of_their_ops_at_any_address) {
  AllKernels all;
  for (const Kernel& k : all.table.all())
    EXPECT_TRUE(k.op == kAggregate || k.op == kElementwise || k.op == kWithElementwise || k.op == kConv2dBias || all.met[k.op] > 0) << "no case of " << k.op << " reaches a kernel";  // joins and groups are no ops
  all.host->build();
  for (const Awaited& w : all.awaited) {
    const std::vector<HostTensor> got = expect_as_wanted(w);
    if (w.bytes() < 128 * 1024) {  // large cases are of many blocks, not of other packs
      EXPECT_EQ(run(w, {.past = 8}), got) << w.what;
    }
  }
  RecordProperty("runs", static_cast<int>(all.awaited.size()));
  RecordProperty("texts", static_cast<int>(all.host->sources().size()));
}

/// Sums of blocks are those of the CPU's kernels, bit for bit, not only near the reference.
TEST(GeneratedKernels, sum_in_the_blocks_of_the_cpu) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable gpu = generated_kernels(host), cpu = cpu_kernels();
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const char* op : {"reduce_sum", "reduce_mean"})
    for (const OpCase& c : gpu_cases("reduce_sum")) {
      await(gpu, ops.at(op), c, 3, true, all);
      Awaited& w = all.back();
      KernelTable::Choice on_cpu = cpu.choose(w.request);
      if (on_cpu.name == kReferenceKernel) continue;
      Awaited same = w;
      same.scratch = on_cpu.support.scratch_bytes;
      same.kernel = cpu.prepare(on_cpu.name, w.request, {same.scratch, false});
      w.wanted = run(same);
    }
  host->build();
  for (const Awaited& w : all) EXPECT_EQ(run(w), w.wanted) << w.what;
}

/// Updates and what closes them, casts, sums and what only moves; long ones beside short ones, some where no pack can be read, some in place; as many
/// at a time as a launch takes.
TEST(GeneratedKernels, give_in_one_launch_the_bits_that_they_give_alone) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  std::set<std::string> met;
  for (const auto& def : ops.all())
    if (def->by_element || std::set<std::string>{"cast", "reshape", "where"}.contains(def->name)) await_all(table, *def, all), met.insert(def->name);
  for (std::int64_t n : {3000, 1, 700}) await(table, ops.at("sgd"), {.name = "of its size", .inputs = {real({n}), real({n}), positive({})}, .outputs = {{f32, {n}}}}, 3, true, all);
  for (std::int64_t n : {5001, 1, 1024, 7}) await(table, ops.at("cast"), {.name = "of its size", .attributes = {{"dtype", bf16}}, .inputs = {real({n})}, .outputs = {{bf16, {n}}}}, 3, true, all);
  for (std::int64_t n : {5, 2000}) await(table, ops.at("add"), {.name = "to all", .inputs = {real({n}), real({1})}, .outputs = {{f32, {n}}}}, 3, true, all);
  EXPECT_GT(met.size(), 15u);
  std::map<const void*, std::vector<const Awaited*>> kinds;
  for (const Awaited& w : all) {
    const auto* joint = dynamic_cast<LaunchesJointly*>(w.kernel.get());
    if (joint) kinds[joint->kind()].push_back(&w);
    else EXPECT_TRUE(w.by.ends_with(kInF32) || w.request.outputs[0].elements() == 0) << w.what;
  }
  for (auto& [kind, members] : kinds) {
    auto kernel = [](const Awaited* w) { return dynamic_cast<LaunchesJointly*>(w->kernel.get()); };
    const auto most = static_cast<std::size_t>(kernel(members[0])->most());
    EXPECT_GE(most, 16u) << members[0]->what;
    for (std::size_t k = 0, known = members.size(); members.size() < most; ++k) members.push_back(members[k % known]);
    members.resize(most);
    kernel(members[0])->prepare_joint();
    std::vector<std::vector<std::byte, AlignedAllocator<std::byte>>> memory;
    std::vector<Arguments> arguments(most);
    for (std::size_t k = 0; k < most; ++k) {
      auto bytes = [&](const HostTensor& x) { return memory.emplace_back(x.bytes().size() + 16).data() + (k % 3 == 2 ? size_of(x.dtype()) : 0); };
      for (const HostTensor& x : members[k]->inputs) {
        std::byte* to = bytes(x);
        std::memcpy(to, x.raw(), x.bytes().size());
        arguments[k].inputs.push_back(members[k]->given[arguments[k].inputs.size()] ? to : nullptr);
      }
      for (const HostTensor& y : members[k]->wanted) arguments[k].outputs.push_back(bytes(y));
      if (members[k]->by == "nvrtc_copy" && k % 2) arguments[k].outputs[0] = const_cast<std::byte*>(arguments[k].inputs[0]);
    }
    std::vector<LaunchesJointly::One> launched;
    for (std::size_t k = 0; k < most; ++k) launched.push_back({kernel(members[k]), &arguments[k]});
    kernel(members[0])->launch_jointly(launched);
    for (std::size_t k = 0; k < most; ++k) {
      const std::vector<HostTensor> alone = run(*members[k]);
      for (std::size_t o = 0; o < alone.size(); ++o)
        EXPECT_EQ(std::memcmp(arguments[k].outputs[o], alone[o].raw(), members[k]->request.wanted[o] ? alone[o].bytes().size() : 0), 0) << members[k]->what << ", number " << k << ", output " << o;
    }
  }
}

/// Where data lie decides how they are read, not the order of sums.
TEST(GeneratedKernels, batch_norm_has_the_same_bits_at_any_address) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const char* op : {"batch_norm", "batch_norm_gradient"})
    for (const OpCase& c : gpu_cases(op))
      if (c.name == "packs in blocks" || c.name == "many rows of packs" || c.name == "halves in blocks") await(table, ops.at(op), c, 3, true, all);
  std::erase_if(all, [](const Awaited& w) { return w.by.ends_with(kInF32); });
  ASSERT_EQ(all.size(), 6u);
  host->build();
  for (const Awaited& w : all) {
    std::vector<std::vector<std::byte, AlignedAllocator<std::byte>>> memory;  // each begins one element behind a multiple of 16
    auto at = [&](const HostTensor& x) { return memory.emplace_back(x.bytes().size() + 16).data() + size_of(x.dtype()); };
    Arguments a;
    for (const HostTensor& x : w.inputs) {
      std::byte* to = at(x);
      std::memcpy(to, x.raw(), x.bytes().size());
      a.inputs.push_back(to);
    }
    for (const HostTensor& y : w.wanted) a.outputs.push_back(at(y));
    std::vector<std::byte, AlignedAllocator<std::byte>> scratch(static_cast<std::size_t>(w.scratch));
    a.scratch = scratch.data();
    w.kernel->launch(a);
    const std::vector<HostTensor> wanted = run(w);
    for (std::size_t k = 0; k < wanted.size(); ++k) EXPECT_EQ(std::memcmp(a.outputs[k], wanted[k].raw(), wanted[k].bytes().size()), 0) << w.what << ", output " << k;
  }
}

/// What a key that no query sees holds stays where it is, also a NaN, which times 0 is no number.
TEST(GeneratedKernels, attention_leaves_padding_alone) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const char* op : {"scaled_dot_product_attention", "scaled_dot_product_attention_gradient"}) {
    const OpCase c = gpu_cases(op)[0];
    await(table, ops.at(op), c, 3, true, all);
    Awaited& w = all.back();
    const HostTensor& mask = w.inputs.back();
    const std::int64_t keys = mask.shape().back();
    for (std::size_t i : {1u, 2u}) {
      HostTensor& x = w.inputs[i];
      const std::int64_t width = x.shape().back(), per_mask = x.elements() / width / keys / (mask.elements() / keys) * keys;
      for (std::int64_t row = 0; row < x.elements() / width; ++row)
        if (!mask.data<bool>()[static_cast<std::size_t>(row / per_mask * keys + row % keys)]) std::fill_n(x.data<float>().begin() + row * width, width, std::numeric_limits<float>::quiet_NaN());
    }
    w.wanted = run_op(ops.at(op), c, w.inputs, 3);
  }
  for (const char* op : {"packed_attention", "packed_attention_gradient"}) {  // 2 x 70 places of 3 x 3 x 17
    const OpCase c = gpu_cases(op)[0];
    await(table, ops.at(op), c, 3, true, all);
    Awaited& w = all.back();
    for (int place = 0; place < 140; ++place)
      if (!w.inputs.back().data<bool>()[static_cast<std::size_t>(place)]) std::fill_n(w.inputs[0].data<float>().begin() + (3 * place + 1) * 51, 102, std::numeric_limits<float>::quiet_NaN());
    w.wanted = run_op(ops.at(op), c, w.inputs, 3);
  }
  for (const Awaited& w : all) expect_as_wanted(w);
}

/// Nothing is rounded on the host: which lane has which element is held to the reference like any sum of f32.
TEST(GeneratedKernels, attention_on_tensor_cores_multiplies_what_it_should) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable generated = generated_kernels(host);
  KernelTable table;
  for (const Kernel& k : generated.all())
    if (k.name == "nvrtc_attention_tf32") table.add(k);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const std::string op : {"packed_attention", "packed_attention_gradient", "scaled_dot_product_attention", "scaled_dot_product_attention_gradient"})
    for (const OpCase& c : gpu_cases(op)) {
      if (!c.name.starts_with("on tensor cores")) continue;
      await(table, ops.at(op), c, 3, !op.ends_with("gradient"), all);
      if (!c.name.ends_with("scores of nothing")) continue;
      std::ranges::fill(all.back().inputs[0].data<float>(), 1.0f);  // the only key that the first query sees is −∞
      std::fill_n(all.back().inputs[1].data<float>().begin(), c.inputs[1].type.shape.back().factor, -std::numeric_limits<float>::infinity());
      all.back().wanted = run_op(ops.at(op), c, all.back().inputs, 3);
    }
  ASSERT_EQ(all.size(), 23u);
  host->build();
  for (Awaited& w : all) {
    w.tolerance = w.request.op.ends_with("gradient") ? 1e-4 : 1e-5;
    expect_as_wanted(w);
  }
}

/// Scores of nothing have logarithms, and slopes, that each kernel writes or refuses.
TEST(GeneratedKernels, attention_of_no_features_is_written_whole) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  const CaseInput qkv = real({2, 70, 3, 2, 0}), y = real({2, 70, 2, 0}), log_sum = {{f32, {2, 2, 70}}, 0, 1};
  std::vector<Awaited> all;
  await(table, ops.at("packed_attention"), {.name = "no features", .inputs = {qkv}, .outputs = {y.type, log_sum.type}, .tolerance = 1e-5}, 3, true, all);
  EXPECT_EQ(all.size(), 1u);
  for (const Kernel& k : table.all()) {
    if (k.name != "nvrtc_attention" || k.op != "packed_attention") continue;
    EXPECT_EQ(k.supports(all.at(0).request).reason, "there are no features, by whose chunks it goes");
  }
  await(table, ops.at("packed_attention_gradient"), {.name = "no features", .inputs = {qkv, y, log_sum, y}, .outputs = {qkv.type, {f32, {2, 2, 70, 70}}}, .tolerance = 0}, 3, true, all);
  await(table, ops.at("scaled_dot_product_attention"), {.name = "no features", .attributes = {{"layout", "bthk"}}, .inputs = {y, y, y}, .outputs = {y.type, log_sum.type}, .tolerance = 1e-5}, 3, true, all);
  host->build();
  for (const Awaited& w : all) expect_as_wanted(w);
}

TEST(GeneratedKernels, resize_by_pixels_that_are_needed_alone) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> awaited;
  const float inf = std::numeric_limits<float>::infinity();
  for (bool wide : {true, false}) {
    Shape x = wide ? Shape{1, 1, 3, 1} : Shape{1, 3, 1, 1};
    await(table, ops.at("resize"), {.name = "the middle of three", .attributes = {{"size", Integers{1, 1}}}, .inputs = {real(x)}, .outputs = {{f32, {1, 1, 1, 1}}}}, 1, true, awaited);
    awaited.back().inputs[0] = HostTensor::of<float>(awaited.back().inputs[0].shape(), std::vector<float>{-inf, 2, inf});
    awaited.back().wanted[0] = HostTensor::of<float>({1, 1, 1, 1}, std::vector<float>{2});
  }
  ASSERT_EQ(awaited.size(), 2u);
  host->build();
  for (const Awaited& w : awaited) expect_as_wanted(w);
}

/// What the CPU refuses at once, the host sees behind the step; the least number by −1 is itself, as there.
TEST(GeneratedKernels, integers_are_divided_as_on_the_cpu) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  await(table, ops.at("div"), {.name = "by zero", .inputs = {whole_numbers({4}), {{i32, {4}}, 1, 4}}, .outputs = {{i32, {4}}}}, 3, true, all);
  ASSERT_EQ(all.size(), 1u);
  Awaited& w = all[0];
  const std::int32_t least = std::numeric_limits<std::int32_t>::min();
  w.inputs = {HostTensor::of<std::int32_t>({4}, {-7, least, 5, 8}), HostTensor::of<std::int32_t>({4}, {2, -1, 5, 3})};
  auto& watched = dynamic_cast<FindsFaults&>(*w.kernel);
  std::uint64_t word = kNoFault;
  watched.watch(&word);
  EXPECT_EQ(run(w)[0], HostTensor::of<std::int32_t>({4}, {-3, least, 1, 2}));
  EXPECT_EQ(word, kNoFault);
  w.inputs[1].data<std::int32_t>()[2] = 0;
  run(w);
  ASSERT_NE(word, kNoFault);
  EXPECT_EQ(watched.fault(word), "[div] integer division by zero");
}

/// Also in lists that are long: the rest is added, and the first that is none is named.
TEST(GeneratedKernels, leave_out_indices_that_are_no_rows) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable table = generated_kernels(host);
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (std::int64_t used : {1, 5}) await(table, ops.at("scatter_add"), {.name = "some", .inputs = {real({5, 3}), below(used, {400}), real({400, 3})}, .outputs = {{f32, {5, 3}}}}, 3, true, all);
  ASSERT_EQ(all.size(), 2u);
  for (Awaited& w : all) {
    auto& watched = dynamic_cast<FindsFaults&>(*w.kernel);
    std::uint64_t word = kNoFault;
    watched.watch(&word);
    EXPECT_EQ(run(w), w.wanted);
    EXPECT_EQ(word, kNoFault);
    const HostTensor indices = w.inputs[1];
    for (std::size_t i : {399u, 17u, 250u}) {
      std::fill_n(w.inputs[2].data<float>().begin() + static_cast<std::ptrdiff_t>(3 * i), 3, 0.0f);
      w.inputs[1].data<std::int32_t>()[i] = i == 17 ? 5 : -1;
    }
    const std::vector<HostTensor> got = run(w);
    ASSERT_NE(word, kNoFault);
    EXPECT_EQ(watched.fault(word), "[scatter_add] index 5 at position 17 is outside the table of 5 rows");
    w.inputs[1] = indices;
    EXPECT_EQ(got, run(w));
  }
}

/// Which is there by name.
TEST(GeneratedKernels, of_batch_norm_go_before_those_of_cudnn) {
  const KernelTable generated = generated_kernels(std::make_shared<CollectedTexts>()), table = cuda_kernels(new_toolkit());
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const char* op : {"batch_norm", "batch_norm_gradient"})
    for (const OpCase& c : gpu_cases(op)) await(generated, ops.at(op), c, 3, true, all);
  int both = 0;
  for (const Awaited& w : all) {
    EXPECT_EQ(table.choose(w.request).name, "nvrtc_batch_norm") << w.what;
    both += table.support("cudnn_batch_norm", w.request).ok;
  }
  EXPECT_TRUE(both > 0 || !cudnn::built());
}

/// Where f32 may be rounded: cuDNN's take what is wider, and halves, which nothing rounds.
TEST(GeneratedKernels, of_attention_on_tensor_cores_go_before_those_of_cudnn) {
  const KernelTable generated = generated_kernels(std::make_shared<CollectedTexts>()), table = cuda_kernels(new_toolkit());
  const OpSet ops = standard_ops();
  auto chosen = [&](const OpCase& c, bool rounds, const std::string& refusal, const char* op = "scaled_dot_product_attention") {
    std::vector<Awaited> all;
    await(generated, ops.at(op), c, 3, true, all);
    EXPECT_EQ(table.support("nvrtc_attention_tf32", all.at(0).request).reason, refusal) << c.name;
    return table.choose(all[0].request, nullptr, {.tf32 = rounds}).name;
  };
  auto of = [](std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t values, bool causal = false) {
    return OpCase{.name = "of its size", .attributes = {{"causal", causal}}, .inputs = {real({2, queries, width}), real({2, keys, width}), real({2, keys, values})}, .outputs = {{f32, {2, queries, values}}, {f32, {2, queries}}}};
  };
  EXPECT_EQ(chosen(of(7, 5, 64, 64, true), true, ""), "nvrtc_attention_tf32");
  EXPECT_EQ(chosen(of(7, 5, 64, 64, true), false, ""), "nvrtc_attention");
  EXPECT_EQ(chosen(of(7, 8, 8, 8, true), true, "no query sees the last keys, and what they hold is multiplied by 0 here"), "nvrtc_attention");
  const std::string wider = cudnn::built() ? "cudnn_attention_tf32" : "nvrtc_attention";
  EXPECT_EQ(chosen(of(7, 8, 72, 8), true, "72 features are more than the 64 that its registers hold"), wider);
  EXPECT_EQ(chosen(of(7, 8, 8, 128), true, "128 features are more than the 64 that its registers hold"), wider);
  EXPECT_EQ(chosen({.name = "packed", .inputs = {real({2, 7, 3, 2, 64})}, .outputs = {{f32, {2, 7, 2, 64}}, {f32, {2, 2, 7}}}}, true, "", "packed_attention"), "nvrtc_attention_tf32");
  for (const OpCase& c : gpu_cases("scaled_dot_product_attention")) {
    if (c.name == "tiles, masked") {
      EXPECT_EQ(chosen(c, true, "it has a mask, and what a query does not see is multiplied by 0 here"), "nvrtc_attention");
    }
    if (c.name == "halves" && cudnn::built()) {
      EXPECT_EQ(chosen(c, true, "it computes no halves itself"), "cudnn_attention");
    }
  }
}

/// A run of windows is unrolled over all columns that it spans, 64 at the most.
TEST(GeneratedKernels, leave_convolutions_whose_windows_reach_far_to_the_library) {
  const KernelTable generated = generated_kernels(std::make_shared<CollectedTexts>());
  const OpSet ops = standard_ops();
  for (std::int64_t apart : {30, 31}) {
    const Attributes attributes = {{"strides", Integers{1, 1}}, {"padding", "same"}, {"dilations", Integers{1, apart}}, {"groups", std::int64_t{8}}};
    std::vector<Awaited> taken;
    await(generated, ops.at("conv2d"), {.name = "far", .attributes = attributes, .inputs = {real({kBatch, 4, 80, 8}), real({1, 3, 1, 8})}, .outputs = {{f32, {kBatch, 4, 80, 8}}}}, 1, true, taken);
    EXPECT_EQ(taken.size(), apart == 30 ? 1u : 0u) << apart;
  }
}

/// Plans are judged by them where the library is not opened.
TEST(GeneratedKernels, and_those_of_libraries_have_names_that_are_known) {
  const KernelTable table = cuda_kernels(new_toolkit());
  std::set<std::pair<std::string, std::string>> there, known;  // and the op
  for (const Kernel& k : table.all()) {
    if (k.op == kAggregate) continue;
    EXPECT_TRUE(is_gpu_kernel(k.name, k.op)) << k.name << " of " << k.op << " is not in ops/gpu_kernel_names.cpp";
    EXPECT_EQ(is_gpu_kernel(k.name + "@eng0", k.op), static_cast<bool>(k.engines)) << k.name;
    there.emplace(k.name, k.op);
  }
  const OpSet ops = standard_ops();
  std::set<std::string> of = {kConv2dBias, kConv2dBiasAdd, kConv2dBiasRelu, kMatmulAdd, kMatmulBias, kMatmulBiasGeluTanh, kWithElementwise, "", "sparse", "adagrad adam", "nonsense"};
  for (const auto& def : ops.all()) of.insert(def->name);
  for (const GpuKernelName& k : gpu_kernel_names())
    for (const std::string& op : of)
      for (const Leeway& leeway : {Leeway{}, Leeway{true, false}, Leeway{false, true}, Leeway{true, true}})
        for (const char* halves : {"", "_in_f32"})
          if (const std::string name = with_leeway(std::string(k.name), leeway) + halves; is_gpu_kernel(name, op)) {
            EXPECT_TRUE(there.contains({name, op}) || !cudnn::built()) << "there is no kernel " << name << " of " << op;
          }
  for (const char* none : {"", "nvrtc_", "nvrtc_none", "_in_f32", "_tf32", "nvrtc_elementwise_tf32", "nvrtc_elementwise_nondeterministic", "nvrtc_elementwise_in_f32_in_f32", "reference"}) EXPECT_FALSE(is_gpu_kernel(none, "add")) << none;
  EXPECT_FALSE(is_gpu_kernel("cudnn_conv2d@", "conv2d"));
}

}  // namespace
}  // namespace belfry::test
