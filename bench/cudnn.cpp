// The engine of cuDNN that every convolution, pool and normalisation of the nets gets on a described device, without a GPU: its bytes beside those that the
// plan reserves, and those of cuDNN's own first choice. cudnn DEVICE.json FAKE_LIBCUDA [NET …]; the nets are those of `belfry nets`, at batch 32 and as two towers of 16.
#include <dlfcn.h>

#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/frontends/session/library.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/cuda/gemm_internal.h>

#include "plans.h"

using namespace belfry;
using namespace belfry::test;
using namespace belfry::cudnn;

namespace {

struct Found {
  std::string what;
  Sequence sequence;
  int nodes = 0;
};

std::string attributes_of(const KernelRequest& r) {
  std::string out;
  for (const char* name : {"strides", "padding", "groups", "window"})
    if (const AttributeValue* v = (r.members.empty() ? r.attributes : &r.members[0]->attributes)->find(name); v && to_string(*v) != "1" && to_string(*v) != "[1, 1]")
      out += fmt::format(" {} {}", name, to_string(*v));
  return out;
}

/// A kernel that notes what it is asked for, and takes it.
Kernel noting(const SequenceKernel& k, std::map<std::string, Found>& found, std::map<std::string, int>& refused) {
  auto supports = [k, &found, &refused](const KernelRequest& r) {
    std::string why = objection(r);
    Sequence sequence = why.empty() ? k.sequence(r) : none(why);
    if (!sequence.refusal.empty()) {
      ++refused[fmt::format("{}: {}", r.op, sequence.refusal)];
      return refuse(sequence.refusal);
    }
    std::string what = r.op;
    for (const LocalType& t : r.inputs) what += " " + to_string(t);
    what += attributes_of(r);
    Found& f = found[what];
    f.what = what;
    f.sequence = sequence;
    ++f.nodes;
    return Support{true, {}, sequence.scratch_bytes(), false};
  };
  return {k.name, k.op, supports, nullptr, k.members};
}

std::map<std::string, Found> sequences_of(const std::string& net, std::map<std::string, int>& refused) {
  std::map<std::string, Found> found;
  KernelTable table;
  for (auto room : {avg_pool2d_sequences, batch_norm_sequences, conv2d_sequences, max_pool2d_sequences})
    for (const SequenceKernel& k : room()) table.add(noting(k, found, refused));
  table.add({"cublas_lt_matmul", "matmul", [&refused](const KernelRequest& r) {
               Gemm g = gemm_of(r);
               ++refused[g.refusal.empty() ? fmt::format("matmul: in {} launches", g.parts.size()) : "matmul: refused, " + g.refusal];
               return Support{g.refusal.empty(), g.refusal, 0, false};
             }, {}});
  auto graph = std::make_shared<const belfry::Graph>(run_passes(training_passes(), net_named(net).build(standard_library()->ops, {})));
  auto choose = chooser({{"cpu", table}});
  for (const Strategy& s : {to_strategy(Single{.device = sims(1)[0], .threads = 1}), to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1})})
    place(graph, s, sim_cluster(2), 32, {.kernels = choose, .groups = find_groups});
  return found;
}

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

struct Tally {
  int shapes = 0, none = 0, other = 0;
};

void survey(const std::string& net, const std::shared_ptr<Target>& target) {
  std::map<std::string, int> refused;
  std::map<std::string, Found> found = sequences_of(net, refused);
  std::map<std::string, Tally> tallies;
  for (auto at = found.rbegin(); at != found.rend(); ++at) {  // convolutions first: batch norm is compiled, a second for each form
    auto& [key, f] = *at;
    Tally& tally = tallies[key.substr(0, key.find(' '))];
    ++tally.shapes;
    std::string engines, why;
    std::int64_t wants = 0;
    bool same = true;
    try {
      for (const auto& step : f.sequence.steps) {
        if (std::holds_alternative<Multiply>(step)) engines += " cuBLASLt";
        if (std::holds_alternative<Transpose>(step)) engines += " transposition";
        const Run* r = std::get_if<Run>(&step);
        if (!r) continue;
        EngineFacts first = find(target, r->graph, {std::int64_t{1} << 40})->facts(), got = first;
        if (first.scratch_bytes > f.sequence.engine_bytes) got = find(target, r->graph, {f.sequence.engine_bytes})->facts();
        engines += fmt::format(" {} {:.2f}", got.name, mib(got.scratch_bytes));
        wants = std::max(wants, first.scratch_bytes);
        same = same && first.name == got.name;
      }
    } catch (const DeviceError& e) {
      why = e.what();
      ++tally.none;
    }
    if (!same) ++tally.other;
    const std::string other = same ? "" : fmt::format("; first choice wants {:.2f}", mib(wants));
    fmt::print("{:3} x {}:{}, MiB of {:.2f} reserved, {:.2f} own{}{}\n", f.nodes, f.what, engines, mib(f.sequence.engine_bytes), mib(f.sequence.own_bytes), other, why);
    std::fflush(stdout);
  }
  for (const auto& [op, t] : tallies) fmt::print("{:22} {:24} {:3} shapes, {} without an engine, {} with another than cuDNN's first\n", net, op, t.shapes, t.none, t.other);
  for (const auto& [why, n] : refused) fmt::print("{:22} {} x {}\n", net, n, why);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fmt::print("cudnn DEVICE.json FAKE_LIBCUDA [NET …]\n"), 1;
  if (!dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL)) return fmt::print("{}\n", dlerror()), 1;
  std::ostringstream json;
  json << std::ifstream(argv[1]).rdbuf();
  CudaToolkit toolkit;
  auto target = described_target(toolkit, json.str());
  std::vector<std::string> nets(argv + 3, argv + argc);
  if (nets.empty()) nets = {"mnist_cnn", "cifar10", "mobilenet_v2", "resnet50", "inception_resnet_v2", "vgg16", "alexnet"};
  for (const std::string& net : nets) survey(net, target);
}
