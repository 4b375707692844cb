// What NVRTC and ptxas make of every generated text, of the cases of all rooms and of all nets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/executor/joins.h>
#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/cuda/join_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>
#include <belfry/ops/fusions.h>

#include "awaited.h"
#include "drawn_group.h"
#include "net_kernels.h"
#include "says.h"

namespace belfry::test {
namespace {

/// A norm's gradient and the tree behind it, in the widest rows that a warp's and a block's threads keep beside two sums of each column.
void await_wide_norms(const KernelTable& table) {
  for (auto [t, dy] : {std::pair{f32, f32}, {f64, f64}, {bf16, bf16}, {f32, bf16}})
    for (std::int64_t columns : {32, 256}) {
      const std::int64_t width = columns * 64 / static_cast<std::int64_t>(size_of(is_half(t) ? f32 : t));
      const DType wide = is_half(t) ? f32 : t;
      Builder b("group");
      const std::vector<Value> inputs = {b.input("x", t, {kBatch, width}), b.input("mean", wide, {kBatch}), b.input("inverse", wide, {kBatch}), b.input("dy", dy, {kBatch, width}), b.input("gamma", wide, {width})};
      b.output(relu(b.graph().add("layer_norm_gradient", inputs, {{"wide", t != dy}}) * b.input("u", t, {kBatch, width}) - b.input("v", t, {kBatch, width})));
      const Graph g = std::move(b).build();
      EXPECT_EQ(table.choose(DrawnGroup(g, find_gpu_groups(g).at(0), 40).request).name, "nvrtc_norm");
    }
}

/// A group with sums of rows, by the kernel of that name.
void await_one(Builder& b, const char* kernel, const KernelTable& table) {
  const Graph g = std::move(b).build();
  const FusionGroup group = find_gpu_groups(g).at(0);
  EXPECT_FALSE(group.kept.empty());
  const DrawnGroup drawn(g, group, 40);
  const KernelTable::Choice choice = table.choose(drawn.request);
  EXPECT_EQ(choice.name, kernel);
  table.prepare(choice.name, drawn.request, {choice.support.scratch_bytes, false});
}

/// Sums of rows beside a norm's gradient, in the widest rows of a warp and a block, with what it makes as halves; and beside trees, of most inputs too.
void await_summed_rows(const KernelTable& table) {
  for (auto [t, dy] : {std::pair{f32, f32}, {bf16, bf16}, {f32, bf16}})
    for (std::int64_t width : {512, 2048}) {
      const DType wide = is_half(t) ? f32 : t;
      Builder b("norm");
      const std::vector<Value> inputs = {b.input("x", t, {kBatch, width}), b.input("mean", wide, {kBatch}), b.input("inverse", wide, {kBatch}), b.input("dy", dy, {kBatch, width}), b.input("gamma", wide, {width})};
      const Value made = relu(b.graph().add("layer_norm_gradient", inputs, {{"wide", t != dy}}) * b.input("u", t, {kBatch, width}) - b.input("v", t, {kBatch, width}));
      b.output(made), b.output(reduce_sum(made, {.axes = {0}}));
      if (t == f32) b.output(cast(made, bf16));
      await_one(b, "nvrtc_norm", table);
    }
  for (DType t : {f32, f64, bf16})
    for (bool most : {true, false}) {
      Builder b("tree");
      auto x = [&](const char* name) { return b.input(name, t, {kBatch, 512}); };
      const Value made = most ? gelu(x("x") * x("y") - x("z")) * x("u") : b.graph().add("gelu_gradient", {x("dy"), x("x")}, {});
      b.output(made), b.output(reduce_sum(made, {.axes = {0}}));
      await_one(b, "nvrtc_elementwise", table);
    }
}

/// Sums of rows beside the gradient of a batch norm and what is behind it, with the tree of most inputs before it, of f32 with dx as halves.
void await_summed_batch_norms(const KernelTable& table) {
  for (DType t : {f32, f64, f16, bf16}) {
    Builder b("batch_norm");
    auto x = [&](const char* name) { return b.input(name, t, {kBatch, 64}); };
    const Value row = b.input("row", is_half(t) ? f32 : t, {64}), norm_of = x("x"), norm = batch_norm(norm_of, row, row, row, row);
    const Value dy = x("dy"), y = x("y"), made = relu(dy * y) - dy;
    const Value dx = emit("batch_norm_gradient", {norm_of, row, row, norm.output(1), norm.output(2), made}, {{"activation", t == f64 ? "none" : "relu6"}}, {});
    b.output(dx), b.output(reduce_sum(dx, {.axes = {0}}));
    if (t == f32) b.output(cast(dx, bf16));
    await_one(b, "nvrtc_batch_norm", table);
  }
}

/// The gradient of a batch norm alone, and of what is behind it, whose dy is kept, made of three and of most inputs, with the sum of its rows beside it or without.
void await_batch_norms_that_keep_dy(const KernelTable& table) {
  for (DType t : {f32, f64, f16, bf16})
    for (bool most : {true, false})
      for (auto [summed, activation] : {std::pair{true, "none"}, {true, "relu6"}, {false, "none"}, {false, "relu6"}}) {
        Builder b("batch_norm");
        auto x = [&](const char* name) { return b.input(name, t, {kBatch, 64}); };
        const Value row = b.input("row", is_half(t) ? f32 : t, {64}), norm_of = x("x"), norm = batch_norm(norm_of, row, row, row, row), sum = add_n({x("u"), x("v")});
        const Value dy = most ? relu(sum * x("w") - x("y")) : relu_gradient(sum, x("y"));
        const Value dx = emit("batch_norm_gradient", {norm_of, row, row, norm.output(1), norm.output(2), dy}, {{"activation", activation}}, {});
        b.output(dx), b.output(dy);
        if (summed) b.output(reduce_sum(dx, {.axes = {0}}));
        await_one(b, "nvrtc_batch_norm", table);
      }
}

/// A convolution with a filter per channel and trees on both sides, or before it alone, that read as many values, most of them per channel, as they may.
void await_convolutions_between_trees(const KernelTable& table) {
  for (DType t : {f32, f64, f16, bf16})
    for (std::int64_t window : {3, 5})
      for (std::int64_t stride : {1, 2})
        for (std::int64_t behind : {0, 1, 3}) {
          if (is_half(t) && window == 5) continue;  // none is made one node
          const DType wide = is_half(t) ? f32 : t;
          Builder b("group");
          auto rows = [&](Value v, std::int64_t first, std::int64_t past) {
            for (std::int64_t k = first; k < past; ++k) v = k % 2 ? relu6(v + b.input("row" + std::to_string(k), wide, {32})) : v * b.input("row" + std::to_string(k), wide, {32});
            return is_half(t) ? cast(v, t) : v;
          };
          const Value x = rows(b.input("x", wide, {kBatch, 9, 9, 32}), behind, behind + 2), filter = b.input("filter", t, {window, window, 32, 1});
          const Value y = depthwise_conv2d(x, filter, {.strides = {stride, stride}, .padding = "same"});
          b.output(behind ? rows(is_half(t) ? cast(y, wide) : y, 0, behind) : y);
          const Graph g = std::move(b).build();
          EXPECT_EQ(table.choose(DrawnGroup(g, find_gpu_groups(g).at(0), 40).request).name, "nvrtc_depthwise_conv2d");
          EXPECT_EQ(find_gpu_groups(g).size(), 1u);
        }
}

/// A large window of few channels with its bias, of as many filters as two warps keep.
void await_few_channels_with_bias(const KernelTable& table) {
  for (DType t : {bf16, f32}) {
    Builder b("group");
    b.graph().precision = t == f32 ? tf32 : GraphPrecision(f32);
    const Value y = conv2d(b.input("x", t, {kBatch, 230, 230, 3}), b.input("filter", t, {7, 7, 3, 64}), {.strides = {2, 2}}) + b.input("bias", t, {64});
    b.output(reduce_max(y, {.axes = {1, 2}}));
    const Graph g = std::move(b).build();
    EXPECT_EQ(table.choose(DrawnGroup(g, find_gpu_groups(g).at(0), 1).request, nullptr, {.tf32 = true}).name, t == f32 ? "nvrtc_few_channels_tf32" : "nvrtc_few_channels");
  }
}

/// Windows that are unfolded and folded back, which engines alone ask for, of pictures small and beyond 32 bits.
void await_unfolded(CollectedTexts& code) {
  code.asking = {"unfolded_", {"conv2d", "conv2d_input_gradient", "conv2d_filter_gradient", "conv2d_transpose"}};
  for (std::int64_t size : {8, 1 << 14})
    for (std::int64_t window : {3, 5})
      for (bool back : {false, true}) cudnn::unfold_kernel(code, {{1, size, size, 16}, {1, size / 2, size / 2, 16}, {{window, window}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, back, {}, {}});
}

/// What joins towers, few and as many as a launch takes.
void await_joins(CollectedTexts& code) {
  code.asking = {std::string(kAggregate), {}};
  for (int towers : {5, 65, static_cast<int>(kMostJoinedByGpu)})
    for (DType t : {f32, f64, boolean}) {
      JoinRequest r{"max", 0, towers, towers, {}};
      for (int k = 0; k < towers; ++k) r.parts.push_back({k, k + 1, {t, {1003}}});
      join_source(join_tree(r), "max", towers, {t, {1003}}).prepare(code);
    }
}

/// Those of all rooms' cases, and of all nets.
const std::map<std::string, AskedFor>& all_texts() {
  static const std::map<std::string, AskedFor> texts = [] {
    auto code = std::make_shared<CollectedTexts>();
    const KernelTable table = collecting(code);
    const OpSet ops = standard_ops();
    std::vector<Awaited> awaited;
    for (const auto& def : ops.all()) await_all(table, *def, awaited);
    EXPECT_GT(code->texts.size(), 400u);
    const std::size_t of_cases = code->texts.size();
    for (const NetDef& net : standard_nets())
      for (DType precision : {f32, bf16, f16})
        for (bool training : {true, false}) EXPECT_GT(look_at(net.name, precision, training, table).with, 0) << net.name;
    EXPECT_GT(code->texts.size(), of_cases + 50);
    const std::size_t of_nets = code->texts.size();
    await_wide_norms(table);
    EXPECT_EQ(code->texts.size(), of_nets + 8);
    await_summed_rows(table);
    EXPECT_EQ(code->texts.size(), of_nets + 8 + 10);
    await_summed_batch_norms(table);
    EXPECT_EQ(code->texts.size(), of_nets + 8 + 10 + 4);
    await_batch_norms_that_keep_dy(table);
    EXPECT_EQ(code->texts.size(), of_nets + 8 + 10 + 4 + 29) << "ResNet-50 has three of them";
    const std::size_t of_norms = code->texts.size();
    await_convolutions_between_trees(table);
    EXPECT_EQ(code->texts.size(), of_norms + 36);
    await_few_channels_with_bias(table);
    EXPECT_EQ(code->texts.size(), of_norms + 36 + 2);
    await_unfolded(*code);
    EXPECT_EQ(code->texts.size(), of_norms + 36 + 2 + 8);
    await_joins(*code);
    EXPECT_EQ(code->texts.size(), of_norms + 36 + 2 + 8 + 9);
    return code->texts;
  }();
  return texts;
}

constexpr std::array kArchitectures = {"sm_80", "sm_90", "sm_100"};

/// What ptxas said of a text: registers and spilled bytes for each architecture.
struct Said {
  std::string kernel;
  std::array<std::pair<int, int>, kArchitectures.size()> of;
};

/// A line "kernel registers spilled registers spilled registers spilled key" per text, below NVRTC's version.
struct Table {
  std::string version;
  std::map<std::string, Said> by_key;
};
const char* const kTable = BELFRY_SOURCE "/tests/ops/gpu_texts.txt";

Table read_table() {
  Table out;
  std::ifstream file(kTable);
  std::getline(file, out.version);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Said s;
    words >> s.kernel;
    for (auto& [registers, spilled] : s.of) words >> registers >> spilled;
    if (std::string key; words >> key) out.by_key[key] = s;
  }
  return out;
}

std::string table_key(Nvrtc& nvrtc, const std::string& text) { return nvrtc.key(text, ""); }

/// Compiles what the table lacks, and leaves out what is no text any more.
void write_table() {
  const Table before = read_table();
  Nvrtc nvrtc(new_toolkit(), "");
  for (const auto& [text, asked] : all_texts())
    for (const char* architecture : kArchitectures)
      if (!before.by_key.contains(table_key(nvrtc, text))) nvrtc.begin(text, architecture);
  std::vector<std::string> lines;
  for (const auto& [text, asked] : all_texts()) {
    const std::string key = table_key(nvrtc, text);
    auto known = before.by_key.find(key);
    std::string line = asked.kernel;
    std::replace(line.begin(), line.end(), ' ', '_');
    for (std::size_t a = 0; a < kArchitectures.size(); ++a)
      if (known != before.by_key.end()) {
        line += fmt::format(" {} {}", known->second.of[a].first, known->second.of[a].second);
      } else {
        const std::shared_ptr<const Compiled> c = nvrtc.compile(text, kArchitectures[a]);
        line += fmt::format(" {} {}", c->registers, c->spilled);
      }
    lines.push_back(line + " " + key + "\n");
  }
  std::sort(lines.begin(), lines.end());
  const std::string beside = std::string(kTable) + ".new";
  std::ofstream file(beside);
  file << Nvrtc(new_toolkit(), "").version() << "\n";
  for (const std::string& line : lines) file << line;
  file.close();
  ASSERT_TRUE(file.good()) << beside;
  std::filesystem::rename(beside, kTable);
}

/// Whether NVRTC is here; why not, where it is not.
std::string lacks_nvrtc(Nvrtc& nvrtc) {
  try {
    nvrtc.compile("", "sm_90");
    return "";
  } catch (const DeviceError& e) {
    return fmt::format("NVRTC is not here: {}", e.what());
  }
}

TEST(TableOfTexts, has_each_that_is_generated_and_no_other) {
  Nvrtc nvrtc(new_toolkit(), "");
  if (const std::string why = lacks_nvrtc(nvrtc); !why.empty()) GTEST_SKIP() << why;
  if (std::getenv("BELFRY_WRITE_TEXTS")) write_table();
  const Table table = read_table();
  if (table.version != nvrtc.version()) GTEST_SKIP() << kTable << " is of NVRTC " << table.version << ", and here is " << nvrtc.version() << ": every text is compiled";
  std::size_t known = 0;
  for (const auto& [text, asked] : all_texts()) known += table.by_key.count(table_key(nvrtc, text));
  const char* const way_out = ": write it by BELFRY_WRITE_TEXTS=1 build/tests/ops_test --gtest_filter='TableOfTexts*', and look at what changed";
  EXPECT_EQ(all_texts().size() - known, 0u) << "texts that are not in " << kTable << way_out;
  EXPECT_EQ(table.by_key.size() - known, 0u) << "lines in " << kTable << " of no text" << way_out;
}

/// The oldest that CUDA 13 compiles for has neither TF32 nor the products of halves that later ones have. Two texts of tensor cores; all where BELFRY_EVERY_TEXT is set.
TEST(TextsForTuring, multiply_by_themselves_or_say_what_they_want) {
  Nvrtc nvrtc(new_toolkit(), "");
  if (const std::string why = lacks_nvrtc(nvrtc); !why.empty()) GTEST_SKIP() << why;
  std::vector<std::pair<std::string, Nvrtc::Future>> begun;
  std::set<std::string> met;
  for (const auto& [text, asked] : all_texts())
    if (std::getenv("BELFRY_EVERY_TEXT") || ((asked.kernel == "nvrtc_few_channels" || asked.kernel == "nvrtc_attention_tf32") && met.insert(asked.kernel).second)) begun.emplace_back(asked.kernel, nvrtc.begin(text, "sm_75"));
  EXPECT_GE(begun.size(), 2u);
  for (auto& [kernel, compiled] : begun) {
    if (kernel.find("attention_tf32") == kernel.npos) EXPECT_NO_THROW(compiled.get()) << kernel;
    else EXPECT_TRUE(says<DeviceError>([&] { compiled.get(); }, {"for sm_75", "TF32 needs compute capability 8.0: take --precision f32"})) << kernel;
  }
}

/// What NVRTC and ptxas say of them, a part at a time. What the table knows of this NVRTC's is compiled one in 32, unless BELFRY_EVERY_TEXT is set.
class GeneratedTexts : public testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};
constexpr std::size_t kParts = 8;

TEST_P(GeneratedTexts, are_compiled_and_spill_nothing) {
  const auto [a, part] = GetParam();
  const std::string arch = kArchitectures[a];
  Nvrtc nvrtc(new_toolkit(), "");
  if (const std::string why = lacks_nvrtc(nvrtc); !why.empty()) GTEST_SKIP() << why;
  const Table table = read_table();
  const bool every = std::getenv("BELFRY_EVERY_TEXT") != nullptr;
  std::size_t k = 0;
  for (const auto& [text, asked] : all_texts()) {
    const std::size_t own = k++;
    if (own % kParts != part) continue;
    auto known = table.by_key.find(table_key(nvrtc, text));
    std::pair<int, int> said;  // registers, spilled bytes
    if (known != table.by_key.end()) said = known->second.of[a];
    if (every || known == table.by_key.end() || own / kParts % 32 == part) {
      std::shared_ptr<const Compiled> c;
      ASSERT_NO_THROW(c = nvrtc.compile(text, arch)) << text;
      const std::pair<int, int> now{c->registers, c->spilled};
      if (known != table.by_key.end()) {
        EXPECT_EQ(now, said) << arch << ", " << kTable << "\n" << text;
      }
      said = now;
    }
    // On sm_80 some keep two registers or so in memory, three while a quotient or root is called.
    EXPECT_LE(said.second, arch == "sm_80" ? 32 : 0) << asked.kernel << ": bytes that are spilled for " << arch << "\n" << text;
    EXPECT_GT(said.first, 0) << "ptxas did not say how many";
    EXPECT_LE(said.first, 128) << arch << "\n" << text;
  }
}
INSTANTIATE_TEST_SUITE_P(Parts, GeneratedTexts, testing::Combine(testing::Range(std::size_t{0}, kArchitectures.size()), testing::Range(std::size_t{0}, kParts)),
                         [](const auto& info) { return fmt::format("for_{}_{}", kArchitectures[std::get<0>(info.param)], std::get<1>(info.param)); });

}  // namespace
}  // namespace belfry::test
