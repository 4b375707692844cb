// The symbolic dataflow graph of one step: nodes in topological order, named values, losses, metrics and updates.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <belfry/graph/device_id.h>
#include <belfry/graph/op_def.h>
#include <belfry/graph/precision.h>
#include <belfry/graph/structural.h>

namespace belfry {

/// Where in a step a node belongs; phases of a plan end where forward turns to backward.
enum class Role : std::uint8_t { forward, backward, update };
std::string to_string(Role role);
Role parse_role(std::string_view text);

struct Node {
  const OpDef* op = nullptr;
  std::string name;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<TensorType> types;
  std::optional<DeviceId> device;  ///< the user's request
  NodeId of = -1;                  ///< the node it follows: a gradient its forward node, a slot or update its variable
  Role role = Role::forward;
  SourceLine source;
};
/// Whether input `i` of a node is read for its shape alone.
bool reads_shape_only(const Node& node, std::size_t i);

/// The short form of training: reading gradients, slots and updates out of it is the pass `differentiate`.
struct TrainSpec {
  std::vector<ValueId> losses;
  std::string optimizer;  ///< its kind: "sgd", "momentum", "adam", …
  Attributes options;
  ValueId learning_rate;  ///< a value in place of the option
  Attributes schedule = {};  ///< of the learning rate, in place of both: its "kind" and options
};

/// Where new nodes go: set and put back by guards.
struct Cursor {
  std::string scope;
  std::optional<DeviceId> device;
  NodeId of = -1;
  Role role = Role::forward;
  SourceLine source;
  const Graph* avoid = nullptr;  ///< made names are none of this graph's either
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<const OpSet> ops, std::string name = "graph");

  /// Adds a node behind its inputs. An empty name is made from the op's. UserError for a name taken twice, a wrong
  /// attribute, inputs that do not fit.
  Value add(std::string_view op, const std::vector<Value>& inputs, const Attributes& attributes = {}, const std::string& name = {});
  Value add(const OpDef& op, const std::vector<Value>& inputs, const Attributes& attributes = {}, const std::string& name = {});

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Node& edit(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  NodeId size() const { return static_cast<NodeId>(nodes_.size()); }
  const TensorType& type(ValueId v) const { return node(v.node).types[static_cast<std::size_t>(v.output)]; }
  std::string name_of(ValueId v) const;
  Value value(ValueId v) { return {this, v}; }
  /// By "node" or "node:k"; nullopt if there is none.
  std::optional<ValueId> find(std::string_view name) const;
  /// UserError with the nearest names.
  ValueId at(std::string_view name) const;
  NodeId find_node(std::string_view name) const;
  /// Nodes that read a node's outputs, once each, ascending.
  const std::vector<NodeId>& readers(NodeId id) const { return readers_[static_cast<std::size_t>(id)]; }

  /// Nodes of op `variable` and `input`, in order.
  std::vector<NodeId> variables() const { return of_op(kVariable); }
  std::vector<NodeId> inputs() const { return of_op(kInput); }

  const OpSet& ops() const { return *ops_; }
  const std::shared_ptr<const OpSet>& shared_ops() const { return ops_; }
  /// A name in the cursor's scope that no node bears: the wish, or wish_1, wish_2, …
  std::string free_name(const std::string& wish) const;
  /// The same, with no node below it either ("name/…"): for the scope of a layer.
  std::string free_scope(const std::string& wish) const;

  std::string name;
  std::string row_symbol = "batch";
  std::vector<ValueId> outputs;              ///< what run fetches by default
  std::map<std::string, ValueId> metrics;
  std::vector<ValueId> losses;               ///< that were differentiated
  std::map<NodeId, ValueId> updates;         ///< variable node → its new value
  GraphPrecision precision;                  ///< what products are computed on
  ValueId gate;                              ///< a bool scalar that closes all updates where it is false, until `gate_updates` has run
  std::map<std::string, ValueId> aliases;    ///< names of nodes that passes put other values in place of
  std::optional<TrainSpec> train;            ///< until `differentiate` has run
  Cursor cursor;

 private:
  std::vector<NodeId> of_op(std::string_view op) const;
  bool has_below(const std::string& name) const;
  std::shared_ptr<const OpSet> ops_;
  std::vector<Node> nodes_;
  std::vector<std::vector<NodeId>> readers_;
  std::map<std::string, NodeId, std::less<>> by_name_;
  mutable std::unordered_map<std::string, int> tried_;  // wish → numbers below this are taken
};

/// Names nearest to a misspelt one, at most three.
std::vector<std::string> near_names(std::string_view wrong, const std::vector<std::string>& known);
/// The same for errors: "did you mean a, b?" or "".
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& known);
bool is_legal_name(std::string_view name);

}  // namespace belfry
