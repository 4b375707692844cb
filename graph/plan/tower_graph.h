// The tower graph: what T towers compute, with every split, aggregate and gather written out. Its arithmetic is final.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/fusion_group.h>
#include <belfry/graph/graph.h>
#include <belfry/graph/plan/cluster.h>
#include <belfry/graph/plan/placement.h>
#include <belfry/graph/plan/variants.h>

namespace belfry {

/// Where a node runs: state lies with its holders, shared nodes run once per holder, device nodes once per device that
/// has towers, tower nodes once per tower.
enum class Scope : std::uint8_t { state, shared, device, tower };
std::string to_string(Scope scope);
Scope parse_scope(std::string_view text);

using ValueIndex = int;

struct PlanValue {
  std::string name;
  TensorType type;
  SplitState state;
  int maker = -1, output = 0;  ///< node, and which of its outputs
  bool read = true;         ///< false: an optional output that nobody reads
};

/// A node of the user's graph inside a fused one, verbatim. Kept: its first output is the fused node's, too.
struct Member {
  NodeId node = -1;
  bool kept = false;
};

/// A wait folded over towers and devices: the relation says which steps of the value's maker are meant.
struct Wait {
  enum Relation : std::uint8_t { kOwn, kShared, kLocal, kTowers, kEvery, kReaders };
  Relation relation = kOwn;
  ValueIndex value = -1;
  bool operator==(const Wait&) const = default;
};
std::string to_string(Wait::Relation relation);
Wait::Relation parse_relation(std::string_view text);

struct PlanNode {
  std::string name;
  std::string op;
  const OpDef* def = nullptr;          ///< null for structural ops
  Attributes attributes;
  std::vector<ValueIndex> inputs;      ///< values, never copies; -1: left out
  std::vector<ValueIndex> outputs;
  Scope scope = Scope::tower;
  NodeId user = -1;                    ///< the user's node; of an inserted node: its cause
  bool inserted = false, again = false;  ///< again: it computes once more what the user's node does, for backward
  Role role = Role::forward;
  std::vector<Member> members;         ///< of a fused node, or the node that expand cut

  // What assign, lower and schedule say.
  int vector = -1;                     ///< a tower node: index of its devices per tower
  DeviceList holders, idle;            ///< any other: its devices; a tower node: those of its towers without rows, which a larger batch gives some (-1 or none: not known)
  bool ranged = false, once = false;   ///< each holder has its range of the elements (graph/plan/ranges.h), not all of them; made when variables were set, not in each step (graph/plan/once.h)
  std::string reason;
  int epoch = -1;
  std::vector<int> phases;             ///< per class, inside the epoch; -1: the class does not run it
  int order = 0;
  std::vector<Wait> waits;
  std::vector<std::pair<ValueIndex, ValueIndex>> donates;  ///< output → variable whose bytes it takes
  int owners = -1, bucket = 0;         ///< of joins: the vector of devices that hold the parts; those of one bucket, but 0, go one behind the other
  SumWay sum = SumWay::direct;         ///< of an aggregate
  Variants by_class, by_group;
};

struct TowerGraph;
std::optional<FusionGroup> group_of(const TowerGraph& graph, const PlanNode& node);  ///< none where it is none, or names what is not there
bool is_tree(const TowerGraph& graph, const PlanNode& node);  ///< a fused node of kElementwise; one whose kernels give the bits of its members
bool has_bits_of_members(const TowerGraph& graph, const PlanNode& node);
/// The graph's values that the outputs of a node of the user's are, or of one that computes it again.
std::vector<ValueId> values_of(const TowerGraph& graph, const PlanNode& node);
bool is_optional(const TowerGraph& graph, const PlanNode& node, std::size_t output);  ///< computed only where it is read
bool is_nondeterministic(const PlanNode& node);  ///< one of its kernels may give other bits each time
/// (output, input) pairs that may share bytes where the input is not read again: its op's; of what has the bits of its members theirs, for inputs of the output's type, but for what a tree before a product reads.
std::vector<std::pair<int, int>> in_place_pairs(const TowerGraph& graph, const PlanNode& node);

/// The inputs whose elements a node reads: not those left out, nor those that it reads for their shape alone.
std::vector<ValueIndex> values_read(const PlanNode& node);

struct TowerGraph {
  std::shared_ptr<const Graph> graph;  ///< after the passes
  int towers = 1;
  std::int64_t batch = 1;
  Combine combine = Combine::global_mean;
  int threads = 1;                     ///< of a tower
  std::vector<PlanNode> nodes;
  std::vector<PlanValue> values;
  std::vector<std::pair<std::string, ValueIndex>> fetches;              ///< name → the fetch node's output
  std::vector<std::pair<ValueIndex, ValueIndex>> updates;               ///< variable → new value

  /// Towers that have rows.
  int present() const { return static_cast<int>(std::min<std::int64_t>(towers, batch)); }
  /// The share of tower t; the whole batch for t < 0.
  Share share(int t) const;
  const PlanNode& maker(ValueIndex v) const { return nodes[static_cast<std::size_t>(values[static_cast<std::size_t>(v)].maker)]; }
  const PlanValue& value(ValueIndex v) const { return values[static_cast<std::size_t>(v)]; }
};

/// Behind the name of a result: what each tower has of it, stacked in tower order.
inline constexpr const char* kTowersSuffix = "@towers";
std::string fetch_node(std::string result);  ///< the name of the node that brings a result to the host
/// What a graph means by a result's name: a metric, else a value, an alias among them; none where the name is the caller's own.
std::optional<ValueId> named_result(const Graph& graph, std::string name);

/// The local type of a value on a share: the row axis of its state takes the share, every other row symbol the batch.
LocalType local_type(const PlanValue& value, const Share& share);

}  // namespace belfry
