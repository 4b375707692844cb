#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

CLI::Validator whole(std::uint64_t low, std::uint64_t high) {
  auto check = [=](std::string& text) {
    std::uint64_t n = 0;
    auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), n);
    bool good = status == std::errc{} && end == text.data() + text.size() && n >= low && n <= high;
    return good ? std::string() : fmt::format("'{}' is no whole number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

CLI::Validator fraction(double low, double high) {
  auto check = [=](std::string& text) {
    double x = 0;
    auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), x);
    const bool good = status == std::errc{} && end == text.data() + text.size() && x >= low && x <= high;
    return good ? std::string() : fmt::format("'{}' is no number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

CLI::Validator count() { return whole(1, std::uint64_t{1} << 62); }

std::map<std::string, std::string> named_values(const std::string& text, const char* form) {
  std::map<std::string, std::string> out;
  for (std::size_t at = text.find(':'); at != text.npos; at = text.find(',', at + 1)) {
    const std::string item = text.substr(at + 1, text.find(',', at + 1) - at - 1);
    const std::size_t is = item.find('=');
    if (is == 0 || is == item.npos || is + 1 == item.size()) throw WrongUse(fmt::format("'{}': {} with commas between them, not '{}'", text, form, item));
    if (!out.try_emplace(item.substr(0, is), item.substr(is + 1)).second) throw WrongUse(fmt::format("'{}': '{}' stands there twice", text, item.substr(0, is)));
  }
  return out;
}

namespace {

std::vector<std::string> strategy_names(const std::vector<StrategyDef>& strategies) {
  std::vector<std::string> out;
  for (const StrategyDef& s : strategies) out.push_back(s.name);
  return out;
}

/// The options that take one of a list, with all that some strategy takes.
std::vector<std::pair<std::string, std::vector<std::string>>> values_of_keys(const std::vector<StrategyDef>& strategies) {
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  for (const StrategyDef& s : strategies)
    for (const StrategyField& f : s.fields) {
      if (f.values.empty()) continue;
      auto at = std::find_if(out.begin(), out.end(), [&](const auto& known) { return known.first == f.name; });
      if (at == out.end()) at = out.insert(out.end(), {f.name, {}});
      for (const std::string& value : f.values)
        if (std::find(at->second.begin(), at->second.end(), value) == at->second.end()) at->second.push_back(value);
    }
  return out;
}

/// "towers=" and so on, of all strategies, and the values of those that have a list, or words among others.
std::vector<std::string> strategy_keys(const std::vector<StrategyDef>& strategies) {
  std::set<std::string> out;
  for (const StrategyDef& s : strategies)
    for (const StrategyField& f : s.fields) out.insert(f.name + "=");
  std::vector<std::string> all(out.begin(), out.end());
  for (const char* some : {"variables=cpu:0", "variables=spread", "variables=chosen", "servers=cpu:0", "buckets=auto", "buckets=none"}) all.push_back(some);
  for (const auto& [key, values] : values_of_keys(strategies))
    for (const std::string& value : values) all.push_back(fmt::format("{}={}", key, value));
  return all;
}

/// The same for --help: "order=1f1b, gpipe, interleaved or by_tower".
std::string lists_of_keys(const std::vector<StrategyDef>& strategies) {
  std::string out;
  for (const auto& [key, values] : values_of_keys(strategies)) out += fmt::format(", {}={}", key, either(values));
  return out;
}

}  // namespace

void PlacementArguments::add_to(CLI::App& app, bool does_run) {
  runs = does_run;
  const std::vector<std::string> strategies = strategy_names(standard_strategies());
  app.add_option("--precision", precision, "f32, bf16 or f16: what products and what follows them are computed on; tf32: as f32, but GPUs may round what they multiply to TF32; by default as the graph says")->check(one_of({"f32", "tf32", "bf16", "f16"}));
  app.add_option("--strategy", strategy, either(strategies) + "; by default towers on several devices")->type_name("NAME")->check(offers(strategies));
  app.add_option("--devices", devices, "cpu:0,cpu:1  sim:0-7; by default cpu:0, or the GPUs of --cluster; auto takes all devices of one that has none; with a plan, or a placement file that names others, in place of its own")
      ->type_name("LIST")
      ->check(is_device_list())
      ->check(offers_list({"cpu:0", "gpu:0", "sim:0-1"}));
  app.add_option("--towers", towers, "shares of the batch; by default one per device")->check(whole(1, kMostTowers));
  app.add_option("--threads-per-tower", threads, "by default cores / towers")->check(whole(1, kMostThreads));
  app.add_option("-O", options, "an option of the strategy: -O variables=cpu:0" + lists_of_keys(standard_strategies()) + "; of one that it has not it says which it has")
      ->type_name("KEY=VALUE")
      ->check(is_strategy_option())
      ->check(offers(strategy_keys(standard_strategies())));
  app.add_option("--move", moves, "devices of nodes by name: 'tower_1/logits/**=cpu:0'")->type_name("GLOB=DEVICE")->check(is_move());
  app.add_option("--placement", placement_file, "a placement file: rules, towers, threads and batch (place and forecast take an answer of dnn-partitioning too); --towers, --threads-per-tower and --batch go before it, and without any it has one tower")->check(is_file());
  app.add_option("--cluster", cluster_file, fmt::format("devices, memory spaces and links from a file, or of one that is known: {}", fmt::join(cluster_names(), ", ")))->check(is_cluster())->check(offers(cluster_names()));
  app.add_option("--memory-fraction", memory_fraction, fmt::format("of a GPU's memory that plans may take; by default {}", SessionOptions{}.memory_fraction))->check(fraction(0.01, 1));
  app.add_option("--calibration", calibration, "what was measured on this machine, for forecasts, for strategies that go by cost, and the engines that plans for GPUs name: belfry bench --calibrate writes it")->check(is_file());
  app.add_option("--recompute", recompute, "keep of the forward pass what so many stretches leave to each other, and compute the rest again in backward")->check(whole(2, 10000));
  if (runs) app.add_flag("--no-cuda-graph", no_cuda_graph, "launch each kernel by itself, on GPUs");
  app.add_flag("--fast-nondeterministic", fast_nondeterministic, "kernels of GPUs may be chosen whose bits may differ from run to run");
  app.add_flag("--soft-placement", soft, "device requests of the graph that cannot be met are warnings, not errors");
  app.add_option("--seed", seed, "of initial values and random draws")->check(whole(0, UINT64_MAX));
}

}  // namespace belfry
