// Nodes by name, as files hold them: what is read before a graph is built, and how a node's line is written.
#pragma once

#include <map>
#include <unordered_map>

#include <belfry/frontends/json/values.h>

namespace belfry {

/// What "belfry" says in files: of graphs, and of plans, which change where their byte offsets mean something else.
inline constexpr int kGraphFormat = 1, kPlanFormat = 2;

struct NodeRecord {
  std::string name;
  const OpDef* op = nullptr;
  Attributes attributes;
  std::vector<std::string> inputs;      ///< "": left out
  std::optional<DeviceId> device;
  std::string of;
  Role role = Role::forward;
  const JsonValue* at = nullptr;        ///< its line in the file
  const JsonValue* inputs_at = nullptr;
};

/// Writes lines of nodes, and what stands beside the lists in graph and plan files alike.
class RecordWriter {
 public:
  RecordWriter(const Graph& graph, const TensorStore& tensors) : graph_(graph), tensors_(tensors) {}

  /// "name", then what an input, variable or other node has of its own.
  void add_own(LineWriter& line, const Node& node) const;
  /// device, of, role: what the user or a pass said about it.
  void add_common(LineWriter& line, const Node& node) const;
  void add_attributes(LineWriter& line, const OpDef* op, const Attributes& attributes) const;
  std::string node_line(NodeId id) const;
  std::string input_names(const Node& node) const;
  /// "belfry", "name", "rows", "precision" and "opset".
  std::vector<std::string> head(int format = kGraphFormat) const;
  /// "outputs", "metrics", "losses", "updates", "aliases", "train".
  std::vector<std::string> tail() const;

 private:
  std::string train() const;
  const Graph& graph_;
  const TensorStore& tensors_;
};
/// Entries of the root object, one per line.
std::string json_file(const std::vector<std::string>& entries);

/// Reads lines of nodes and builds the graph of them.
class RecordReader {
 public:
  RecordReader(const JsonDocument& document, std::shared_ptr<const OpSet> ops, const TensorStore& tensors) : d_(document), ops_(std::move(ops)), tensors_(tensors) {}

  /// Takes "belfry", "name", "rows", "precision" and "opset", and refuses what a reader of this format cannot know.
  void read_head(JsonObject& root, int format = kGraphFormat);
  /// Each takes the keys that it knows; the caller may take more, and calls done.
  NodeRecord read_source(JsonObject& line, const char* op) const;
  NodeRecord read_node(JsonObject& line) const;
  Attributes read_attributes(const JsonValue* v, const OpDef& op) const;
  const OpDef& op_of(const JsonValue& v) const;
  /// Sorted topologically, in the given order where that is possible.
  Graph build(std::vector<NodeRecord> records) const;
  /// Takes what RecordWriter::tail writes.
  void read_tail(JsonObject& root, Graph& graph) const;

  const std::string& name() const { return name_; }

 private:
  void read_common(JsonObject& line, NodeRecord& out) const;
  void add(Graph& graph, const NodeRecord& record) const;
  void read_train(const JsonValue& v, Graph& graph) const;
  Attributes read_schedule(const JsonValue& v) const;
  ValueId value(const Graph& graph, const JsonValue& v) const;
  std::vector<std::size_t> sorted(const std::vector<NodeRecord>& records, const std::unordered_map<std::string, std::size_t>& by_name) const;
  [[noreturn]] void refuse_cycle(const std::vector<NodeRecord>& records, const std::vector<std::vector<std::size_t>>& reads, const std::vector<bool>& done) const;

  const JsonDocument& d_;
  std::shared_ptr<const OpSet> ops_;
  const TensorStore& tensors_;
  std::string name_ = "graph", rows_ = "batch";
  GraphPrecision precision_;
};

}  // namespace belfry
