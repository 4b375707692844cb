#include <set>

#include <fmt/format.h>

#include <belfry/frontends/json/records.h>

namespace belfry {

namespace {

std::string entry(std::string_view key, const std::string& json) { return fmt::format("\"{}\": {}", key, json); }

std::string object_of(const std::vector<std::pair<std::string, std::string>>& items, bool lines) {
  std::vector<std::string> texts;
  for (const auto& [key, value] : items) texts.push_back(json_text(key) + ": " + value);
  if (!lines || texts.size() < 2) return fmt::format("{{{}}}", fmt::join(texts, ", "));
  return fmt::format("{{\n    {}\n  }}", fmt::join(texts, ",\n    "));
}

}  // namespace

std::string json_file(const std::vector<std::string>& entries) { return fmt::format("{{\n  {}\n}}\n", fmt::join(entries, ",\n  ")); }

void RecordWriter::add_attributes(LineWriter& line, const OpDef* op, const Attributes& attributes) const {
  LineWriter out;
  for (const auto& [name, value] : attributes.entries()) {
    const AttributeDef* def = nullptr;
    if (op)
      for (const AttributeDef& d : op->attributes)
        if (d.name == name) def = &d;
    if (!def || !def->fallback || *def->fallback != value) out.add(name, json_of(value, tensors_));
  }
  if (!out.empty()) line.add("attributes", out.text());
}

/// The attributes of inputs and variables stand in the line itself; how a variable begins is one object.
void RecordWriter::add_own(LineWriter& line, const Node& n) const {
  line.add("name", json_text(n.name));
  if (n.op->name != kInput && n.op->name != kVariable) {
    line.add("op", json_text(n.op->name));
    if (!n.inputs.empty()) line.add("inputs", input_names(n));
    return add_attributes(line, n.op, n.attributes);
  }
  for (const AttributeDef& def : n.op->attributes) {
    const AttributeValue* value = n.attributes.find(def.name);
    if (def.name == "init_value") continue;
    if (def.name == "init") {
      LineWriter begin;
      begin.add("kind", json_of(*value, tensors_));
      if (const AttributeValue* with = n.attributes.find("init_value"); *with != AttributeValue(0.0)) begin.add("value", json_of(*with, tensors_));
      line.add("init", begin.text());
    } else if (!def.fallback || *def.fallback != *value) line.add(def.name, json_of(*value, tensors_));
  }
}

void RecordWriter::add_common(LineWriter& line, const Node& n) const {
  if (n.device) line.add("device", json_text(to_string(*n.device)));
  if (n.of >= 0) line.add("of", json_text(graph_.node(n.of).name));
  if (n.role != Role::forward) line.add("role", json_text(to_string(n.role)));
}

std::string RecordWriter::input_names(const Node& n) const {
  std::vector<std::string> out;
  for (ValueId v : n.inputs) out.push_back(v.valid() ? json_text(graph_.name_of(v)) : "null");
  return json_list(out);
}

std::string RecordWriter::node_line(NodeId id) const {
  LineWriter line;
  add_own(line, graph_.node(id));
  add_common(line, graph_.node(id));
  return line.text();
}

std::vector<std::string> RecordWriter::head(int format) const {
  std::map<std::string, int> versions;
  for (const Node& n : graph_.nodes()) versions[n.op->name] = n.op->version;
  LineWriter opset;
  for (const auto& [name, version] : versions) opset.add(name, std::to_string(version));
  std::vector<std::string> out = {entry("belfry", std::to_string(format)), entry("name", json_text(graph_.name))};
  if (graph_.row_symbol != "batch") out.push_back(entry("rows", json_text(graph_.row_symbol)));
  if (graph_.precision != f32) out.push_back(entry("precision", json_text(name_of(graph_.precision))));
  out.push_back(entry("opset", opset.text()));
  return out;
}

std::string RecordWriter::train() const {
  const TrainSpec& t = *graph_.train;
  std::vector<std::string> losses;
  for (ValueId v : t.losses) losses.push_back(json_text(graph_.name_of(v)));
  LineWriter optimizer, out;
  optimizer.add("kind", json_text(t.optimizer));
  bool own_rate = !t.learning_rate.valid() && t.schedule.entries().empty();
  if (t.learning_rate.valid()) optimizer.add("learning_rate", json_text(graph_.name_of(t.learning_rate)));
  else if (!own_rate) {
    LineWriter schedule;
    for (const auto& [name, value] : t.schedule.entries()) schedule.add(name, json_of(value, tensors_));
    optimizer.add("learning_rate", schedule.text());
  }
  for (const auto& [name, value] : t.options.entries())
    if (name != "learning_rate" || own_rate) optimizer.add(name, json_of(value, tensors_));
  out.add("loss", losses.size() == 1 ? losses[0] : json_list(losses));
  out.add("optimizer", optimizer.text());
  return out.text();
}

std::vector<std::string> RecordWriter::tail() const {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::string> out;
  auto list = [&](const char* key, const std::vector<ValueId>& values) {
    std::vector<std::string> names;
    for (ValueId v : values) names.push_back(json_text(graph_.name_of(v)));
    if (!names.empty()) out.push_back(entry(key, json_list(names)));
  };
  auto object = [&](const char* key, const Pairs& pairs, bool lines) {
    if (!pairs.empty()) out.push_back(entry(key, object_of(pairs, lines)));
  };
  auto named = [&](const std::map<std::string, ValueId>& values) {
    Pairs pairs;
    for (const auto& [name, v] : values) pairs.emplace_back(name, json_text(graph_.name_of(v)));
    return pairs;
  };
  list("outputs", graph_.outputs);
  object("metrics", named(graph_.metrics), false);
  list("losses", graph_.losses);
  Pairs updates;
  for (NodeId w : graph_.variables())
    if (auto u = graph_.updates.find(w); u != graph_.updates.end()) updates.emplace_back(graph_.node(w).name, json_text(graph_.name_of(u->second)));
  object("updates", updates, true);
  object("aliases", named(graph_.aliases), true);
  if (graph_.gate.valid()) out.push_back(entry("gate", json_text(graph_.name_of(graph_.gate))));
  if (graph_.train) out.push_back(entry("train", train()));
  return out;
}

std::string write_graph(const Graph& graph, const TensorStore& tensors, const std::string& state) {
  RecordWriter writer(graph, tensors);
  std::vector<std::string> inputs, variables, nodes, entries = writer.head();
  for (NodeId id = 0; id < graph.size(); ++id) {
    const std::string& op = graph.node(id).op->name;
    (op == kInput ? inputs : op == kVariable ? variables : nodes).push_back(writer.node_line(id));
  }
  entries.push_back(entry("inputs", json_lines(inputs)));
  entries.push_back(entry("variables", json_lines(variables)));
  entries.push_back(entry("nodes", json_lines(nodes)));
  for (std::string& e : writer.tail()) entries.push_back(std::move(e));
  if (!state.empty()) entries.push_back(entry("state", json_text(state)));
  return json_file(entries);
}

}  // namespace belfry
