#include <belfry/frontends/cli/device_options_internal.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <belfry/executor/device/cpu/host_facts.h>
#include <belfry/executor/device/cuda/backend.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/session/gpus.h>
#include <belfry/frontends/session/stand_ins.h>
#include <belfry/graph/plan/cost.h>

namespace belfry {

CLI::Validator readable(const std::function<void(const std::string&)>& read) {
  return CLI::Validator(
      [read](std::string& text) {
        try {
          read(text);
        } catch (const UserError& e) {
          return std::string(e.what());
        }
        return std::string();
      },
      "");
}

CLI::Validator is_device_list() {
  return readable([](const std::string& text) {
    if (text.empty()) throw UserError("names no device; write cpu:0, or leave it out");
    parse_devices(text);
  });
}

CLI::Validator is_move() {
  return readable([](const std::string& text) { parse_move(text); });
}

CLI::Validator is_strategy_option() {
  return readable([](const std::string& text) {
    if (const auto equal = text.find('='); equal == text.npos || !equal) throw UserError(fmt::format("'{}' is not of the form KEY=VALUE, as in variables=cpu:0", text));
  });
}

Strategy strategy_named(const Library& library, const std::string& name, const std::vector<DeviceId>& devices, const std::map<std::string, std::string>& options) {
  return made_of_options([&] { return library.strategy(name).make(devices, options); });
}

std::string machine_in_words() {
  const HostFacts host = host_facts();
  return fmt::format("{}, {} cores, {}, {}", host.processor, host.cores, isa_text(host), libraries_text(host));
}

void say_measured_elsewhere(const CostTable& costs, const Source& source, const std::optional<Cluster>& given, const PlacementArguments& a) {
  const Cluster* cluster = given ? &*given : source.plan ? &source.plan->cluster : nullptr;
  const bool counts = !cluster || std::any_of(cluster->devices.begin(), cluster->devices.end(), is_measured);
  if (!counts)
    say(fmt::format("--calibration {}: {} says itself how fast its CPUs are, so no time that was measured counts{}\n", a.calibration, given ? "--cluster " + a.cluster_file : "the plan's cluster",
                    costs.engines.empty() ? "" : "; the engines that it names do"));
  if (const std::string here = machine_in_words(); counts && costs.machine != here)
    say(fmt::format("--calibration {}: was measured on another machine, or with other libraries ({}), and this is {}: belfry bench --calibrate measures here\n", a.calibration, printable(costs.machine), here));
}

void say_absent_gpus(const Source& source, const PlacementArguments& a, const Session& session) {
  std::vector<DeviceId> absent;
  for (const DeviceId& d : session.cluster().ids())
    if (d.kind == "gpu") absent.push_back(d);
  const bool others = !a.cluster_file.empty() || (source.plan && a.devices.empty());  // of which a file says what they are
  if (others || absent.empty() || session.options().library->open_gpu) return;
  const CudaFacts& facts = (*session.options().gpus)();
  std::erase_if(absent, [&](const DeviceId& d) { return d.host == 0 && std::any_of(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& g) { return g.index == d.index; }); });
  if (absent.empty()) return;
  const ClusterDevice unknown{absent[0], to_string(absent[0])};
  const DeviceRate rate = rate_of(unknown, 1);
  say(fmt::format(
      "{}: not here (belfry devices says why), and no --cluster says what it is: costs{} are those of a GPU of {:.0f} Tflop/s, {:.0f} GB/s and {} GiB; --cluster F gives the "
      "machine that it shall run on, a file or one of {}\n",
      to_string(absent), a.calibration.empty() ? "" : " that were not measured", rate.flops / 1e12, rate.bandwidth / 1e9, unknown.memory >> 30, fmt::join(cluster_names(), ", ")));
}

void say_what_stops(const PlacedGraph& plan, const PlacementArguments& a, const Session& session) {
  if (!a.cluster_file.empty()) return;
  std::vector<std::string> why;
  for (const Missing& m : what_stops(plan, *session.options().library, *session.options().gpus)) why.push_back(to_string(m));
  if (why.empty()) return;
  const std::string offer = session.strategy().loops ? session.options().stand_ins : fmt::format("--devices {} beside it lets it run with the CPU's numbers", sims_for(replaceable_devices(plan).size()));
  say(fmt::format("this plan cannot run here: {}; {} (belfry devices says more)\n", fmt::join(why, "; "), offer));
}

LoopFiles loop_files(const std::string& file) {
  namespace fs = std::filesystem;
  const fs::path path(file), folder = path.parent_path();
  std::error_code error;
  if (fs::is_other(path, error) || folder == "/dev" || folder == "/dev/fd" || folder == "/proc/self/fd")
    throw UserError(
        fmt::format("-o {}: is no file that others can stand beside, and what is trained by loops has two plans: name a file, as in -o plan.json, which writes plan.worker.json "
                    "and plan.server.json",
                    file));
  auto beside = [&](const char* who) { return fs::path(path).replace_extension(std::string(".") + who + ".json").string(); };
  LoopFiles out{beside("worker"), beside("server")};
  refuse_unwritable({out.worker, out.server});
  return out;
}

}  // namespace belfry
