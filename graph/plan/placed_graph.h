// The plan: the tower graph with devices, moves, phases, streams, waits and byte offsets. Each tower node stands once.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/placement.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/plan/tower_graph.h>

namespace belfry {

/// Numbers of a tower's device and memory space, by first appearance; -1 where it has none.
struct LocalPlace {
  int device = -1, space = -1;
  auto operator<=>(const LocalPlace&) const = default;
};

/// Bytes of a tower's values on one device: those that live across phases or are read elsewhere, one part per tower in
/// flight; the rest, one part per stream, which begins where the last kept part does. Kept parts begin `kept` bytes apart and may be
/// `tail` bytes longer: what is in use in one then is not in the next. `kept` is 0 where each buffer has a place of its own in each slot.
struct FrameSize {
  std::int64_t kept = 0, transient = 0, tail = 0;
  bool operator==(const FrameSize&) const = default;
};

/// Towers with the same share, kinds of device, and nodes that sit together.
struct TowerClass {
  std::int64_t share = 0;
  std::vector<std::string> kinds;
  std::vector<LocalPlace> pattern;  ///< per vector
  std::vector<int> towers;
  std::vector<FrameSize> frame;     ///< per local device
  bool operator==(const TowerClass&) const = default;
};

/// Devices that hold the same values have one layout.
struct DeviceGroup {
  std::vector<int> devices;
  std::int64_t state = 0, region = 0;  ///< bytes
  bool operator==(const DeviceGroup&) const = default;
};

/// One phase of one tower on a stream; it waits until the tower `after` has left the slot.
struct StreamEntry {
  int tower = 0, epoch = 0, phase = 0, slot = 0, after = -1;
  bool operator==(const StreamEntry&) const = default;
};

struct PlanStream {
  int device = 0;
  std::string name;      ///< "main", or "tower<k>"
  std::vector<StreamEntry> entries;
  int slots = 0, thread = 0;  ///< thread: of the host; streams of one run in one topological order
  bool operator==(const PlanStream&) const = default;
};

struct PlacedGraph : TowerGraph {
  Placement placement;
  Cluster cluster;
  std::vector<std::vector<int>> vectors;  ///< distinct device-per-tower lists; -1: the tower is absent
  std::vector<TowerClass> classes;
  std::vector<DeviceGroup> groups;
  std::vector<PlanStream> streams;
  std::vector<FrameSize> frames;          ///< per device: the largest of the classes that use it
  std::string arithmetic_hash;
  std::string isa, libraries;             ///< records of the machine that it was made for: they decide bits, but nothing here

  const std::vector<int>& devices(const PlanNode& n) const { return vectors[static_cast<std::size_t>(n.vector)]; }
  int device_of(const PlanNode& n, int tower) const { return devices(n)[static_cast<std::size_t>(tower)]; }
};

/// A number per device, equal for those of one memory space.
std::vector<int> space_numbers(const Cluster& cluster);

/// All devices on which a node runs, ascending for tower nodes.
DeviceList all_devices(const PlacedGraph& plan, const PlanNode& node);
std::vector<int> devices_of_towers(const PlacedGraph& plan, const PlanNode& node);  ///< of a tower node, those of towers without rows too; -1: not known

/// A node that joins what towers have, or devices in ranges: it moves values itself.
inline bool is_join(const PlanNode& n) { return is_op(n, "aggregate") || is_op(n, "fetch") || is_op(n, "all_gather"); }
/// Whether all its kernels give the same bits.
bool is_exact(const PlacedGraph& plan, const PlanNode& n);
/// What brings its first input elsewhere or keeps it as it is: it computes nothing, so no bits depend on it.
bool changes_nothing(const PlanNode& n);
/// A node that reads where its input is made, in another memory space too; all others read what serves their device.
bool moves_values(const PlanNode& n);

/// Who makes a value, its copies, and which instance of it serves a device.
class Instances {
 public:
  explicit Instances(const PlacedGraph& plan);
  explicit Instances(PlacedGraph&&) = delete;  // it reads the plan: keep it
  struct At { int node = -1, device = -1; };
  const PlacedGraph& plan() const { return plan_; }
  bool same_space(int a, int b) const { return space_[static_cast<std::size_t>(a)] == space_[static_cast<std::size_t>(b)]; }
  std::span<const int> copies(ValueIndex v) const { return copies_[static_cast<std::size_t>(v)]; }
  /// The device itself if it holds the node, else the first holder of its space, else -1.
  int near(const std::vector<int>& holders, int device) const;
  /// The instance of a shared value that serves a device: its own, else one of its space, else a copy. UserError if none does.
  At shared(ValueIndex v, int device) const;
  /// The holder of a shared value that a node which moves it reads: one near the device, else of those that need no stage the first of its link group, of its host where peers are known, of all.
  int moved_from(const PlanNode& move, ValueIndex v, int device) const;
  /// The tower's own instance: the maker's, or a copy in the space of the device.
  At own(ValueIndex v, int tower, int device) const;

 private:
  const PlacedGraph& plan_;
  NumberLists copies_;
  std::vector<int> space_;          // per device
  mutable std::vector<int> group_;  // likewise, found when it is first asked for
};

/// The largest subtrees of the tower tree whose towers lie on one device.
struct Piece { int low = 0, high = 0, device = -1; };
std::vector<Piece> pieces(const std::vector<int>& owners, int towers);

}  // namespace belfry
