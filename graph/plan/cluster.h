// What a plan can be placed on: devices, their memory spaces, and links. Plain data, written by hand in a test.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
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
  // What a forecast knows of it; 0: nothing.
  double flops = 0, bandwidth = 0;          ///< f32 operations and bytes of its memory a second, at most
  double launch = 0;                        ///< seconds that a kernel costs beside its work
  double efficiency = 1;                    ///< the share of both that kernels reach
  double overlap = 1;                       ///< of the time in which a sum's kernel, or a library's collective, waits for links: the share in which a GPU's other kernels go on
  double flops_tf32 = 0, flops_half = 0;    ///< operations a second of products in TF32, and of halves; 0: as in f32
  /// Whose kernels it runs: sim devices run the CPU's.
  std::string kernels() const { return id.kind == "sim" ? "cpu" : id.kind; }
  /// Of one kind, and as fast.
  bool runs_as(const ClusterDevice& o) const;
  bool operator==(const ClusterDevice&) const = default;
};

/// Numbers of devices of a cluster. Copies share one list, so that a thousand nodes that lie alike cost one.
class DeviceList {
 public:
  DeviceList() = default;
  DeviceList(std::vector<int> devices) : list_(std::make_shared<const std::vector<int>>(std::move(devices))) {}
  DeviceList(std::initializer_list<int> devices) : DeviceList(std::vector<int>(devices)) {}
  const std::vector<int>& get() const;
  operator const std::vector<int>&() const { return get(); }
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  bool empty() const { return get().empty(); }
  std::size_t size() const { return get().size(); }
  int front() const { return get().at(0); }
  bool operator==(const DeviceList& o) const { return list_ == o.list_ || get() == o.get(); }
  bool operator<(const DeviceList& o) const { return list_ != o.list_ && get() < o.get(); }

 private:
  std::shared_ptr<const std::vector<int>> list_;
};

/// Each memory space of these devices has a way of its own to `to`: another space, or a switch, which is any other name. A '*'
/// in it is the device's host: "/host:*/nvswitch". Both directions have the whole bandwidth.
struct ClusterLink {
  std::vector<DeviceId> devices;
  std::string to;
  double bandwidth = 0;                     ///< bytes a second
  double latency = 0;                       ///< seconds
  bool operator==(const ClusterLink&) const = default;
};

struct Cluster {
  std::vector<ClusterDevice> devices;
  std::vector<std::pair<std::string, std::string>> unlinked;  ///< pairs of spaces that no link joins
  /// Groups of whole GPUs of which each reads the others' memory, and alone those that read no other's. Of GPUs in no group nothing is known. Logical devices of one GPU always do.
  std::vector<std::vector<DeviceId>> peers;
  int cores = 1;                                              ///< of the first host
  std::vector<std::int64_t> host_memory;                      ///< per host, bytes that its cpu and sim devices share; hosts without an entry: no limit
  std::vector<ClusterLink> links;                             ///< for forecasts; none: what moves costs what memory does

  const std::string& space(int d) const { return devices[static_cast<std::size_t>(d)].space; }
  /// UserError where a device stands twice, or a GPU beside its own slice.
  void check() const;
  /// UserError with the known ones for another device.
  int at(const DeviceId& id) const;
  int find(const DeviceId& id) const;
  /// The names of these devices, in their order; of all.
  std::vector<DeviceId> ids(const std::vector<int>& numbers) const;
  std::vector<DeviceId> ids() const;
  /// Where feeds and results live: the first cpu device of the first host.
  int host() const;
  bool linked(const std::string& a, const std::string& b) const;
  /// Whole GPUs whose memory kernels on this one read where it lies, itself the first. None for a device of another kind.
  std::vector<DeviceId> read_by(int d) const;
  /// The first cpu device of a host; -1: it has none.
  int cpu_of(int host) const;
  /// The CPU through whose memory goes what one GPU has for another of its host, where `peers` says that neither reads the other's; -1: it goes at once.
  int stage(int from, int to) const;
  bool operator==(const Cluster&) const = default;
};

/// The named devices, in order: cpu devices share the space "host", sim devices and GPUs have each their own. A cpu:0 is added
/// behind them where none is named, since feeds and results live on a host. `memory`: of this host; 0: no limit. `gpus`: bytes of
/// each GPU by its index, of which its logical devices have equal shares; no limit for one that is not there.
Cluster local_cluster(const std::vector<DeviceId>& devices, int cores, std::int64_t memory = 0, const std::map<int, std::int64_t>& gpus = {});

}  // namespace belfry
