// The kernels that GPUs would run for one training step of the nets, without a GPU: gpu_kernels [NET...]. Which ops have a generated kernel,
// and every generated text compiled by NVRTC for three architectures, with its registers and spilled bytes.
#include <cstdio>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/error.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

using namespace belfry;

namespace {

/// Keeps the texts that it is asked to compile.
struct Collected : GpuCode {
  std::shared_ptr<GpuFunction> function(const std::string& source, const std::string&, std::size_t) override {
    texts[source].insert(asking);
    return nullptr;
  }
  std::string asking;
  std::map<std::string, std::set<std::string>> texts;  // with the ops that ask for them
};

/// The table; what a request chooses is prepared at once, so that its texts are collected.
KernelTable preparing(const std::shared_ptr<Collected>& code) {
  const KernelTable all = generated_kernels(code);
  KernelTable out;
  for (Kernel k : all.all()) {
    k.supports = [inner = k, code](const KernelRequest& r) {
      Support s = inner.supports(r);
      code->asking = r.op;
      if (s.ok) inner.prepare(r);
      return s;
    };
    out.add(std::move(k));
  }
  return out;
}

/// Nodes per op that have no generated kernel.
void look_at(const std::string& name, const KernelTable& table) {
  auto library = std::make_shared<const OpSet>(standard_ops());
  auto graph = std::make_shared<const Graph>(run_passes(training_passes(), net_named(name).build(library)));
  Cluster cluster;
  cluster.cores = 1;
  cluster.devices.push_back({cpu(0), "host", 1});
  std::map<std::string, int> without;
  int nodes = 0, with = 0;
  KernelChooser choose = chooser({{"cpu", table}});
  PlaceOptions options;
  options.kernels = [&](const KernelQuery& q) {
    KernelChoice c = choose(q);
    ++nodes;
    if (c.name == kReferenceKernel) ++without[q.node.op + (q.node.def ? "" : " " + q.node.attributes.text("kind"))];
    else ++with;
    return c;
  };
  place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), cluster, 32, options);
  std::string others;
  for (auto& [op, n] : without) others += fmt::format(" {} {}", n, op);
  fmt::print("{:16} {:4} of {:4} nodes have a generated kernel; left to others:{}\n", name, with, nodes, others);
}

}  // namespace

int main(int argc, char** argv) {
  auto code = std::make_shared<Collected>();
  KernelTable table = preparing(code);
  std::vector<std::string> nets(argv + 1, argv + argc);
  if (nets.empty()) nets = {"mnist_cnn", "cifar10", "mobilenet_v2", "resnet50", "transformer"};
  Nvrtc nvrtc(new_toolkit(), "");
  try {
    for (const std::string& n : nets) look_at(n, table);
    fmt::print("\n{} texts; registers (and spilled bytes)\n{:>6} {:>12} {:>12}  ops\n", code->texts.size(), "sm_80", "sm_90", "sm_100");
    int spills = 0;
    for (auto& [text, ops] : code->texts) {
      std::string line;
      for (const char* arch : {"sm_80", "sm_90", "sm_100"}) {
        auto c = nvrtc.compile(text, arch);
        line += fmt::format("{:>5} {:<7}", c->registers, c->spilled ? fmt::format("({})", c->spilled) : "");
        spills += std::string_view(arch) == "sm_90" && c->spilled > 0;
      }
      std::string words;
      for (const std::string& op : ops) words += (words.empty() ? "" : ", ") + op;
      fmt::print("{} {}\n", line, words);
      std::fflush(stdout);
    }
    fmt::print("\n{} texts spill on sm_90\n", spills);
    return spills > 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
