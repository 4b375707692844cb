// What a plan can be placed on: devices, their memory spaces, and links. Plain data, written by hand in a test.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/device_id.h>

namespace belfry {

struct ClusterDevice {
  DeviceId id;
  std::string space;                        ///< devices of one space read each other's memory: "host", "sim:3"
  int streams = 1;                          ///< towers at once
  std::int64_t memory = std::int64_t{1} << 40;  ///< bytes
  /// Whose kernels it runs: sim devices run the CPU's.
  std::string kernels() const { return id.kind == "sim" ? "cpu" : id.kind; }
  bool operator==(const ClusterDevice&) const = default;
};

struct Cluster {
  std::vector<ClusterDevice> devices;
  std::vector<std::pair<std::string, std::string>> unlinked;  ///< pairs of spaces that no link joins
  int cores = 1;                                              ///< of the first host

  const std::string& space(int d) const { return devices[static_cast<std::size_t>(d)].space; }
  /// UserError with the known ones for another device.
  int at(const DeviceId& id) const;
  int find(const DeviceId& id) const;
  /// Where feeds and results live: the first cpu device of the first host.
  int host() const;
  bool linked(const std::string& a, const std::string& b) const;
  bool operator==(const Cluster&) const = default;
};

/// The named devices, in order: cpu devices share the space "host", a sim device is its own. A cpu:0 is added behind them
/// where none is named, since feeds and results live on a host.
Cluster local_cluster(const std::vector<DeviceId>& devices, int cores);

}  // namespace belfry
