// The engine of cuDNN that every convolution, pool and normalisation of the nets gets on a described device, without a GPU: its bytes beside those that the
// plan reserves, and those of cuDNN's own first choice. cudnn DEVICE.json FAKE_LIBCUDA [NET …]; the nets are those of `belfry nets`, at batch 32 and as two towers of 16.
#include <dlfcn.h>

#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>

#include "net_sequences.h"

using namespace belfry;
using namespace belfry::test;
using namespace belfry::cudnn;

namespace {

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

struct Tally {
  int shapes = 0, none = 0, other = 0;
};

void survey(const std::string& net, const std::shared_ptr<Target>& target) {
  const auto [found, refused] = sequences_of(net);
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
