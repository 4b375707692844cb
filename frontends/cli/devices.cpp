// belfry devices: what is here and works, and what is missing.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/frontends/cli/verbs_internal.h>

namespace belfry {
namespace {

std::string gibibytes(std::int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

void print_text(const HostFacts& host) {
  fmt::print("{:<8} memory {} ({} available), {} core{}, {}\n", host.cores == 1 ? "cpu:0" : fmt::format("cpu:0-{}", host.cores - 1), gibibytes(host.memory_bytes), gibibytes(host.available_bytes), host.cores,
             host.cores == 1 ? "" : "s", host.isa);
  if (!host.processor.empty()) fmt::print("         {}\n", host.processor);
  fmt::print("         all in one memory; more of them than cores share threads\n");
  fmt::print("sim:0-N  any number, each with a memory of its own; they run the CPU's kernels\n");
  for (const LibraryFact& l : host.libraries) fmt::print("{:<8} {}\n", l.name, l.version);
}

std::string links_text(const CudaFacts& facts, int gpu) {
  std::vector<std::string> out;
  for (const GpuLink& l : facts.links)
    if (l.from == gpu || l.to == gpu) out.push_back(fmt::format("{} to gpu:{}", l.kind == "host" ? "through the host" : l.kind, l.from == gpu ? l.to : l.from));
  return fmt::format("{}", fmt::join(out, ", "));
}

void print_text(const CudaFacts& facts) {
  for (const GpuFacts& g : facts.gpus) {
    const std::string free = g.free_bytes < 0 ? "" : fmt::format(" ({} free)", gibibytes(g.free_bytes));
    fmt::print("gpu:{:<4} {}, compute capability {}.{}, memory {}{}\n", g.index, g.name, g.major, g.minor, gibibytes(g.memory_bytes), free);
    fmt::print("         {} multiprocessors, PCI {}, {}\n", g.multiprocessors, g.pci, g.uuid);
    if (std::string links = links_text(facts, g.index); !links.empty()) fmt::print("         {}\n", links);
    if (!g.stops.what.empty()) fmt::print("         cannot be used: {}; {}\n", g.stops.why, g.stops.way_out);
  }
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible && !facts.gpus.empty()) fmt::print("         CUDA_VISIBLE_DEVICES is '{}': the driver hides what it does not name, and numbers the rest anew\n", visible);
  const std::string release = facts.driver_release.empty() ? "" : facts.driver_release + ", ";
  if (!facts.driver_cuda.empty()) fmt::print("{:<8} {}knows CUDA {}, this build needs {}; {}\n", "driver", release, facts.driver_cuda, facts.wanted, facts.driver);
  for (const CudaLibraryFacts& l : facts.libraries)
    if (!l.version.empty()) fmt::print("{:<8} {} {}\n", l.name, l.version, l.path);
  for (const Missing& m : facts.missing) fmt::print("missing  {}: {}; {}\n", m.what, m.why, m.way_out);
  if (std::all_of(facts.gpus.begin(), facts.gpus.end(), [](const GpuFacts& g) { return !g.stops.what.empty(); }))
    fmt::print("         no plan runs on gpu:0 here; sim:0-7 stand in for GPUs: they run any plan with the CPU's numbers\n");
}

void add_json(nlohmann::ordered_json& out, const CudaFacts& facts) {
  for (const GpuFacts& g : facts.gpus) {
    const std::string id = fmt::format("gpu:{}", g.index);
    nlohmann::ordered_json free = g.free_bytes < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(g.free_bytes);
    out["devices"].push_back({{"id", id}, {"space", id}, {"name", g.name}, {"compute_capability", fmt::format("{}.{}", g.major, g.minor)}, {"multiprocessors", g.multiprocessors},
                              {"memory_bytes", g.memory_bytes}, {"free_bytes", free}, {"uuid", g.uuid}, {"pci", g.pci}});
    if (!g.stops.what.empty()) out["devices"].back()["cannot_be_used"] = {{"why", g.stops.why}, {"way_out", g.stops.way_out}};
  }
  nlohmann::ordered_json links = nlohmann::ordered_json::array(), libraries = nlohmann::ordered_json::object();
  for (const GpuLink& l : facts.links) links.push_back({{"from", fmt::format("gpu:{}", l.from)}, {"to", fmt::format("gpu:{}", l.to)}, {"kind", l.kind}, {"peer", l.peer}});
  for (const CudaLibraryFacts& l : facts.libraries) libraries[l.name] = {{"version", l.version}, {"path", l.path}};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  out["cuda"] = {{"backend", facts.backend}, {"visible_devices", visible ? nlohmann::ordered_json(visible) : nlohmann::ordered_json()}, {"wanted", facts.wanted}, {"driver", facts.driver}, {"driver_cuda", facts.driver_cuda}, {"driver_release", facts.driver_release},
                 {"links", links}, {"libraries", libraries}};
  out["missing"] = nlohmann::ordered_json::array();
  for (const Missing& m : facts.missing) out["missing"].push_back({{"what", m.what}, {"why", m.why}, {"way_out", m.way_out}});
}

void print_json(const HostFacts& host, const CudaFacts& cuda) {
  nlohmann::ordered_json out;
  out["devices"] = nlohmann::ordered_json::array();
  for (int i = 0; i < host.cores; ++i) out["devices"].push_back({{"id", fmt::format("cpu:{}", i)}, {"space", "host"}});
  out["host"] = {{"processor", host.processor}, {"cores", host.cores}, {"memory_bytes", host.memory_bytes}, {"available_bytes", host.available_bytes}, {"isa", host.isa}};
  for (const LibraryFact& l : host.libraries) out["libraries"][l.name] = l.version;
  add_json(out, cuda);
  fmt::print("{}\n", out.dump(2));
}

}  // namespace

void add_devices_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("devices", "What is here and works: devices, cores, memory, libraries, and what is missing");
  verb->footer("Example: belfry devices --json");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "For machines");
  verb->callback([json] {
    const CudaFacts cuda = cuda_facts();
    if (*json) return print_json(host_facts(), cuda);
    print_text(host_facts());
    print_text(cuda);
  });
}

}  // namespace belfry
