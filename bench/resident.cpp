// How much the process grows when plans are bound and run, beside what they plan: resident [BATCH]. A child process for each net.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/memory.h>

using namespace belfry;

namespace {

double resident_mib() {
  malloc_trim(0);
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::map<std::string, HostTensor> feeds_of(const Graph& graph, std::int64_t batch) {
  std::map<std::string, HostTensor> out;
  for (NodeId id : graph.inputs()) {
    const TensorType& t = graph.node(id).types[0];
    HostTensor value(t.dtype, extents_of(t.shape, batch));
    if (t.dtype == f32)
      for (std::size_t i = 0; float& x : value.data<float>()) x = static_cast<float>(i++ % 255) / 255.0f;
    out.emplace(graph.node(id).name, std::move(value));
  }
  return out;
}

template <class S>
void measure(const std::string& net, const Settings& settings, const std::string& how, const S& strategy, std::int64_t batch) {
  pid_t child = fork();
  if (child == 0) {
    auto library = standard_library();
    const Graph graph = net_named(net).build(library->ops, settings);
    const auto feeds = feeds_of(graph, batch);
    double first = 0;
    std::int64_t planned = 0, state = 0;
    {  // what a process has once, whatever it runs: threads, the libraries' own memory
      Session small(net_named("mlp").build(library->ops), strategy, {.library = library});
      small.step(feeds_of(small.graph(), 4));
    }
    Session session(graph, strategy, {.library = library});
    const PlacedGraph& plan = session.plan(batch);
    for (const DeviceBytes& b : device_bytes(plan)) planned += b.total(), state += b.state;
    std::size_t launches = 0;  // each is prepared, and keeps what its library wants
    for (const auto& stream : BoundPlan(plan).streams) launches += stream.size();
    const double before = resident_mib();
    session.prepare({batch});
    const double bound = resident_mib() - before;
    for (int k = 0; k < 4; ++k) {
      session.step(feeds);
      if (k == 0) first = resident_mib() - before;
    }
    const double after = resident_mib() - before, mib = static_cast<double>(planned) / (1 << 20);
    fmt::print("{:14} {:22} batch {:4}: planned {:8.2f} MiB (state {:.2f}), grown by {:8.2f} when bound, {:8.2f} after a step, {:8.2f} after four: {:.3f}x, {:+.2f} MiB, {:.1f} KiB for each of {} launches\n", net, how, batch, mib,
               static_cast<double>(state) / (1 << 20), bound, first, after, after / mib, after - mib, 1024 * (after - mib) / static_cast<double>(launches), launches);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status) fmt::print("{} {} failed\n", net, how);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t batch = argc > 1 ? std::atoll(argv[1]) : 64;
  for (const auto& [net, settings] : {std::pair{"mnist_cnn_wide", Settings{}}, {"cifar10", {}}, {"mobilenet_v2", {{"image", 96}}}}) {
    measure(net, settings, "single", Single{}, batch);
    measure(net, settings, "towers on cpu:0-1", Towers{.devices = parse_devices("cpu:0,cpu:1")}, batch);
    measure(net, settings, "mirrored on sim:0-1", Mirrored{.devices = parse_devices("sim:0-1")}, batch);
    measure(net, settings, "1f1b on sim:0-1", Layers{.devices = parse_devices("sim:0-1"), .towers = 4, .order = PhaseOrder::one_f_one_b}, batch);
  }
}
