#include <belfry/frontends/json/plan_graph.h>

#include <set>

#include <fmt/format.h>

#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// The name of the value that is computed again: without the ".again" behind its node's.
std::string second_of(const PlacedGraph& plan, ValueIndex v) {
  std::string name = plan.value(v).name;
  auto at = name.rfind(kAgain);
  return at == name.npos ? name : name.erase(at, std::string(kAgain).size());
}

/// The user's value that an input stands for: what is inserted between them is left out.
std::string user_value(const JsonDocument& d, const PlacedGraph& plan, ValueIndex v, const JsonValue& at) {
  for (std::size_t steps = 0; steps <= plan.nodes.size(); ++steps) {
    const PlanNode& m = plan.maker(v);
    if (!m.inserted) return plan.value(v).name;
    if (m.again) return second_of(plan, v);
    if (m.def || m.inputs.empty()) break;
    v = m.inputs[0];
  }
  d.fail(at, fmt::format("'{}' stands for no value of the graph", plan.value(v).name));
}

void check_user(const JsonDocument& d, const PlacedGraph& plan, const PlanLine& line, const PlanNode& n) {
  if (n.op == kFused && n.members.empty()) d.fail(*line.at, fmt::format("'{}' is fused, but stands for no nodes of the graph: name the fused node that it computes again in \"cause\"", n.name));
  const Node& user = plan.graph->node(n.user);
  const std::vector<ValueId> made = values_of(plan, n);
  if (n.outputs.size() != made.size()) d.fail(*line.at, fmt::format("'{}' makes {} values, but the graph's {} {}", n.name, n.outputs.size(), n.op == kFused ? "nodes" : "node", made.size()));
  for (std::size_t k = 0; k < n.outputs.size(); ++k) {
    const PlanValue& value = plan.value(n.outputs[k]);
    if (const TensorType& type = plan.graph->type(made[k]); value.type != type)
      d.fail(*line.at->find("outputs"), fmt::format("output {} of '{}' is {}, but the graph says {}", k, n.name, to_string(value.type), to_string(type)));
    if (!n.again && value.name != plan.graph->name_of(made[k]))
      d.fail(*line.at->find("outputs"), fmt::format("output {} of '{}' is called '{}', but is '{}'", k, n.name, value.name, plan.graph->name_of(made[k])));
  }
  if (n.def && (n.def != user.op || n.attributes != user.attributes)) d.fail(*line.at, fmt::format("'{}' differs from the member of that name", n.name));
}

/// What is inserted gives the type that it reads, but for a fetch that stacks the towers.
void check_inserted(const JsonDocument& d, const PlacedGraph& plan, const PlanLine& line, const PlanNode& n) {
  if (n.inputs.empty() || n.inputs[0] < 0) d.fail(*line.at, fmt::format("'{}' reads nothing", n.name));
  if (n.outputs.size() != 1) d.fail(*line.at, fmt::format("'{}' makes {} values, not one", n.name, n.outputs.size()));
  TensorType type = plan.value(n.inputs[0]).type;
  if (const AttributeValue* how = n.attributes.find("how"); n.op == kFetch && how && *how == AttributeValue("stack")) type.shape.insert(type.shape.begin(), Dim(plan.present()));
  if (plan.value(n.outputs[0]).type != type)
    d.fail(*line.at->find("outputs"), fmt::format("'{}' gives {}, but it reads {}", n.name, to_string(plan.value(n.outputs[0]).type), to_string(type)));
  for (ValueIndex v : n.inputs)
    if (v < 0 || plan.value(v).type != plan.value(n.inputs[0]).type) d.fail(*line.at, fmt::format("'{}' reads values of several types", n.name));
}

}  // namespace

Graph graph_of_lines(const JsonDocument& d, const RecordReader& records, const PlacedGraph& plan, const std::vector<PlanLine>& lines, JsonObject& root) {
  std::vector<NodeRecord> plain;
  std::map<int, NodeRecord> placed_at;
  std::set<std::string> members;
  auto put = [&](NodeRecord r, int at) {
    members.insert(r.name);
    const JsonValue* where = r.at;
    if (!placed_at.emplace(at, std::move(r)).second) d.fail(*where, fmt::format("two nodes stand at place {} of the graph", at));
  };
  for (const PlanLine& l : lines)
    for (std::size_t k = 0; k < l.positions.size(); ++k) put(l.members[k], l.positions[k]);
  if (const JsonValue* idle = root.find("idle"))
    for (const JsonValue& e : d.array(*idle)) {
      JsonObject line(d, e);
      const JsonValue* source = line.find("source");
      if (source && d.text(*source) != kInput && source->text != kVariable) d.fail(*source, "is \"input\" or \"variable\"");
      NodeRecord r = source ? records.read_source(line, source->text.c_str()) : records.read_node(line);
      put(std::move(r), static_cast<int>(d.integer(line.at("at"), 0, kMostNodes)));
      line.done();
    }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const PlanLine& l = lines[i];
    const PlanNode& n = plan.nodes[i];
    if (n.inserted || !l.positions.empty()) continue;
    auto add = [&](NodeRecord r) { l.position < 0 ? plain.push_back(std::move(r)) : put(std::move(r), l.position); };
    if (!l.members.empty()) add(l.members[0]);
    else if (!members.contains(n.name)) {
      NodeRecord r = l.record;
      for (std::size_t k = 0; k < r.inputs.size(); ++k)
        if (!r.inputs[k].empty()) r.inputs[k] = user_value(d, plan, n.inputs[k], r.inputs_at->items[k]);
      add(std::move(r));
    }
  }
  Graph graph = records.build(put_in_place(std::move(placed_at), std::move(plain)));
  records.read_tail(root, graph);
  return graph;
}

void match_user(const JsonDocument& d, const PlacedGraph& plan, const PlanLine& line, PlanNode& n) {
  const Graph& g = *plan.graph;
  const JsonValue* cause = line.at->find("cause");
  n.user = g.find_node(cause ? d.text(*cause) : n.name);
  if (n.user < 0) d.fail(cause ? *cause : *line.at, fmt::format("the graph has no node '{}'", cause ? cause->text : n.name));
  if (!n.inserted && (line.members.size() > 1 || n.op != g.node(n.user).op->name))
    for (std::size_t m = 0; m < line.members.size(); ++m) n.members.push_back({g.find_node(line.members[m].name), line.kept[m]});
  else if (!n.inserted && !line.members.empty()) n.members.push_back({n.user});
  if (n.op == kAggregate) n.members.clear();  // it stands for itself, under another op
  if (n.again && n.op == kFused)
    for (const PlanNode& m : plan.nodes)
      if (!m.inserted && m.user == n.user) n.members = m.members;
  if (n.inserted && !n.again) check_inserted(d, plan, line, n);
  else check_user(d, plan, line, n);
}

}  // namespace belfry
