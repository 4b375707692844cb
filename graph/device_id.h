// Names of devices: cpu:0, gpu:1, gpu:0/1 (a logical device), sim:3, /host:2/gpu:0.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

struct DeviceId {
  int host = 0;
  std::string kind = "cpu";
  int index = 0;
  int slice = -1;  ///< -1: the whole device
  DeviceId whole() const { return {host, kind, index, -1}; }
  auto operator<=>(const DeviceId&) const = default;
};

inline DeviceId cpu(int index) { return {0, "cpu", index, -1}; }

std::string to_string(const DeviceId& id);
/// One device; UserError with the known forms for other texts. Only a GPU has slices.
DeviceId parse_device(std::string_view text);
/// A list: "cpu:0,cpu:1", "gpu:0,2,3", "sim:0-7", "/host:0-3/gpu:0-7" host by host ("/host:0-3/gpu:0,2": gpu:0 of each, then gpu:2 of each), at most 65536 a range. Names that `clash` are an error.
std::vector<DeviceId> parse_devices(std::string_view text);
/// Why a device cannot stand beside these: it is one of them, or one GPU with one, as a whole beside its own slice. Empty where it can.
std::string clash(const std::set<DeviceId>& there, const DeviceId& id);
/// "sim:0-7" for runs of neighbours, "/host:0-3/gpu:0-7" for hosts that have the same; the inverse of parse_devices.
std::string to_string(const std::vector<DeviceId>& ids);

}  // namespace belfry
