// Links between memory spaces: routes, flows that share them by max-min, and what a collective costs on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/cluster.h>

namespace belfry {

/// What a link's `to` names for a device: "/host:*/nvswitch" is that of its host. Host 0 is not named in devices and spaces.
std::string place_at(const std::string& to, const DeviceId& id);

/// One direction of a link.
struct Way {
  std::string from, to;      ///< spaces or switches
  double bandwidth = 0, latency = 0;
};

/// The links of a cluster as a graph of spaces and switches.
class Links {
 public:
  explicit Links(const Cluster& cluster);

  bool empty() const { return ways_.empty(); }
  const std::vector<Way>& ways() const { return ways_; }
  /// Numbers of the ways from one device's space to another's: the fewest, and of those the widest. Empty within a space. Never
  /// through another GPU's memory, since a GPU passes nothing on.
  /// UserError naming both where there is no route.
  std::vector<int> route(int from, int to);
  /// Whether there is one.
  bool leads(int from, int to);
  double latency(const std::vector<int>& route) const;

  /// Seconds in which every one of `members` gets `bytes` from every other, all at once; `pieces` of them each (1 where left
  /// out). Adds what each way carries to `load`. Equal sets of members are counted once. `behind`: another went just before.
  double exchange(const std::vector<int>& members, const std::vector<int>& pieces, double bytes, std::vector<double>& load, bool behind = false);

 private:
  int place(const std::string& name);
  int place_of(int device) const { return of_device_[static_cast<std::size_t>(device)]; }
  void add(int from, int to, double bandwidth, double latency);
  const std::vector<int>& reached_from(int place);

  const Cluster& cluster_;
  std::vector<Way> ways_;
  std::vector<std::vector<int>> out_;                                   // per place, its ways
  std::vector<int> head_;                                               // per way, the place it leads to
  std::map<std::string, int> places_;
  std::vector<int> of_device_;                                          // the place of its space
  std::vector<char> ends_;                                              // per place, whether it is the memory of a GPU
  std::vector<std::vector<int>> reached_;                               // per place, once asked for, by which way each other one is reached
  struct Crossings {
    std::map<int, double> pairs;                                        // per way, what crosses it
    double latency = 0;
  };
  std::map<std::pair<std::vector<int>, std::vector<int>>, Crossings> crossings_;
};

/// Between which devices nothing can go: their spaces are said to have no link, or have no route where the cluster gives links.
class Apart {
 public:
  explicit Apart(const Cluster& cluster);
  bool operator()(int a, int b) { return any_ && (!cluster_.linked(cluster_.space(a), cluster_.space(b)) || (!links_.empty() && !links_.leads(a, b))); }
  /// Whether there are such devices.
  bool any() const { return any_; }

 private:
  const Cluster& cluster_;
  Links links_;
  bool any_;
};

/// A number per device, equal for those of a host whose widest links lead to the same switch, or from each to each of them;
/// where nothing is said of their links, for logical devices of one GPU, and for all others of a host.
std::vector<int> link_groups(const Cluster& cluster);

/// Bytes on their way.
struct Flow {
  std::vector<int> route;    ///< ways
  double bytes = 0, rate = 0;
  int step = -1;             ///< whose
  int from = -1;             ///< the device that has them
};

/// Sets the rates of flows that are under way at once: the way that gives each of its flows the least is filled first, and
/// what its flows leave elsewhere is shared by the others.
class MaxMin {
 public:
  /// They must live as long.
  explicit MaxMin(const std::vector<Way>& ways) : ways_(ways), left_(ways.size()) {}
  void share(std::vector<Flow>& flows);

 private:
  struct Left {
    double bandwidth = 0;
    int flows = 0;
    bool full = false;
  };
  const std::vector<Way>& ways_;
  std::vector<Left> left_;       // per way; without flows between two calls
  std::vector<int> used_;        // ways that have flows
  std::vector<Flow*> open_;
};

}  // namespace belfry
