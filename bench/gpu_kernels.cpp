// The kernels that GPUs would run for the nets, without a GPU: gpu_kernels [NET...]. Which nodes have a generated kernel, in training and in
// inference, in f32, bf16 and f16; and every generated text compiled by NVRTC for three architectures, with its registers and
// spilled bytes: the tables of docs/gpu_kernels.md.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/nvrtc_internal.h>

#include "net_kernels.h"

using namespace belfry;
using namespace belfry::test;

namespace {

constexpr std::array kArchitectures = {"sm_80", "sm_90", "sm_100"};

/// The most of some texts.
struct Cost {
  int texts = 0;
  std::array<int, kArchitectures.size()> registers{}, spilled{};
};

std::string row(const std::string& what, const Cost& c) {
  std::string out = fmt::format("| {} | {} |", what, c.texts);
  for (std::size_t a = 0; a < kArchitectures.size(); ++a) out += fmt::format(" {} | {} |", c.registers[a], c.spilled[a]);
  return out + "\n";
}

/// "52 conv2d, 3 matmul".
std::string counted(const std::map<std::string, int>& ops) {
  std::string out;
  for (const auto& [op, n] : ops) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, op);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> nets(argv + 1, argv + argc);
  if (nets.empty())
    for (const NetDef& n : standard_nets()) nets.push_back(n.name);
  Nvrtc nvrtc(new_toolkit(), "");
  auto code = std::make_shared<CollectedTexts>();
  const KernelTable kernels = collecting(code);
  try {
    fmt::print("| net | nodes of a step in f32, bf16, f16 | of these generated | of inference | of these generated | left to others |\n|---|---|---|---|---|---|\n");
    for (const std::string& net : nets) {
      std::array<std::string, 4> told;
      std::map<std::string, int> others;
      for (DType precision : {f32, bf16, f16})
        for (bool training : {true, false}) {
          const NodesOfNet n = look_at(net, precision, training, kernels);
          std::string &nodes = told[training ? 0 : 2], &with = told[training ? 1 : 3];
          nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", n.nodes);
          with += fmt::format("{}{}", with.empty() ? "" : ", ", n.with);
          if (training)
            for (const auto& [op, count] : n.without) others[op] = std::max(others[op], count);
        }
      fmt::print("| {} | {} | {} |\n", net, fmt::join(told, " | "), counted(others));
      std::fflush(stdout);
    }
    std::map<std::string, Cost> table;
    int spills = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t begin_cpu = std::clock();
    for (const auto& [text, asked] : code->texts)
      for (const char* architecture : kArchitectures) nvrtc.begin(text, architecture);
    for (const auto& [text, asked] : code->texts) {
      Cost& c = table[fmt::format("{} | {}", asked.kernel, fmt::join(asked.ops, ", "))];
      ++c.texts;
      for (std::size_t a = 0; a < kArchitectures.size(); ++a) {
        const auto compiled = nvrtc.compile(text, kArchitectures[a]);
        c.registers[a] = std::max(c.registers[a], compiled->registers);
        c.spilled[a] = std::max(c.spilled[a], compiled->spilled);
        spills += compiled->spilled > 0 && kArchitectures[a] == std::string_view("sm_90");
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::clock_t cpu = std::clock() - begin_cpu;
    fmt::print("\n| kernel | ops | texts | {} | spilled |\n|---|---|---|---|---|---|---|---|---|\n", fmt::join(kArchitectures, " | spilled | "));
    for (const auto& [what, cost] : table) fmt::print("{}", row(what, cost));
    fmt::print("\n{} texts, {} spill on sm_90; compiled for {} architectures in {:.1f} s, {:.1f} s of cores\n", code->texts.size(), spills, kArchitectures.size(), took.count(), static_cast<double>(cpu) / CLOCKS_PER_SEC);
    return spills > 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
