// belfry devices: what is here and works, and what is missing.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/frontends/cli/verbs_internal.h>

namespace belfry {
namespace {

struct Missing {
  std::string what, why, way_out;
};

std::vector<Missing> missing() {
  std::string why = cuda_version().empty() ? "no CUDA toolkit was found when this program was built" : "this program has no CUDA kernels";
  return {{"gpu", why, "sim:0-7 stand in for GPUs: they run any plan with the CPU's numbers"}};
}

std::string gibibytes(std::int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

void print_text(const HostFacts& host) {
  fmt::print("{:<8} memory {} ({} available), {} core{}, {}\n", host.cores == 1 ? "cpu:0" : fmt::format("cpu:0-{}", host.cores - 1), gibibytes(host.memory_bytes), gibibytes(host.available_bytes), host.cores,
             host.cores == 1 ? "" : "s", host.isa);
  if (!host.processor.empty()) fmt::print("         {}\n", host.processor);
  fmt::print("         all in one memory; more of them than cores share threads\n");
  fmt::print("sim:0-N  any number, each with a memory of its own; they run the CPU's kernels\n");
  for (const LibraryFact& l : host.libraries) fmt::print("{:<8} {}\n", l.name, l.version);
  for (const Missing& m : missing()) fmt::print("missing  {}: {}; {}\n", m.what, m.why, m.way_out);
}

void print_json(const HostFacts& host) {
  nlohmann::ordered_json out;
  out["devices"] = nlohmann::ordered_json::array();
  for (int i = 0; i < host.cores; ++i) out["devices"].push_back({{"id", fmt::format("cpu:{}", i)}, {"space", "host"}});
  out["host"] = {{"processor", host.processor}, {"cores", host.cores}, {"memory_bytes", host.memory_bytes}, {"available_bytes", host.available_bytes}, {"isa", host.isa}};
  for (const LibraryFact& l : host.libraries) out["libraries"][l.name] = l.version;
  for (const Missing& m : missing()) out["missing"].push_back({{"what", m.what}, {"why", m.why}, {"way_out", m.way_out}});
  fmt::print("{}\n", out.dump(2));
}

}  // namespace

void add_devices_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("devices", "What is here and works: devices, cores, memory, libraries, and what is missing");
  verb->footer("Example: belfry devices --json");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "For machines");
  verb->callback([json] { *json ? print_json(host_facts()) : print_text(host_facts()); });
}

}  // namespace belfry
