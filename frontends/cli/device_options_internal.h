// Options that name devices and strategies: what the command line alone shows to be wrong is wrong use, and GPUs that are not here are said.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/cli/common_internal.h>

namespace belfry {

/// Of an option's text: what `read` objects to is wrong use.
CLI::Validator readable(const std::function<void(const std::string&)>& read);
CLI::Validator is_device_list();      ///< "cpu:0,cpu:1", "sim:0-7"
CLI::Validator is_move();             ///< "tower_1/logits/**=cpu:0"
CLI::Validator is_strategy_option();  ///< "variables=cpu:0"

/// Of the library, by name. WrongUse where there is none, and where it refuses its options.
Strategy strategy_named(const Library& library, const std::string& name, const std::vector<DeviceId>& devices, const std::map<std::string, std::string>& options);

/// This machine, as calibrations name the one that they were measured on.
std::string machine_in_words();
/// Says so where what was measured is of another machine, or of none of the devices that a cluster's file describes.
void say_measured_elsewhere(const CostTable& costs, const Source& source, const std::optional<Cluster>& given, const PlacementArguments& arguments);

/// Says which GPUs a placement is made for without anything being known of them: no such device is here, and no cluster says what it is.
void say_absent_gpus(const Source& source, const PlacementArguments& arguments, const Session& session);

/// Says why the plan cannot run here, where it is for GPUs here that cannot be used, or calls a library that is not.
void say_what_stops(const PlacedGraph& plan, const PlacementArguments& arguments, const Session& session);

/// The files of a strategy that trains by loops, beside `file`: "plan.json" gives plan.worker.json and plan.server.json. UserError where these
/// cannot be: beside a device, a pipe or a standard stream.
struct LoopFiles {
  std::string worker, server;
};
LoopFiles loop_files(const std::string& file);

}  // namespace belfry
