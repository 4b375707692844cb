#include <algorithm>
#include <mutex>
#include <queue>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/json/records.h>
#include <belfry/graph/float_environment.h>

namespace belfry {

namespace {

/// "node:k" → node. A name holds no colon, so the last one counts outputs.
std::string node_of(const std::string& value) { return value.substr(0, value.rfind(':')); }

/// For nodes, which outlive the document.
const char* kept(const std::string& file) {
  static std::mutex mutex;
  static std::set<std::string> all;
  std::lock_guard lock(mutex);
  return all.insert(file).first->c_str();
}

}  // namespace

void RecordReader::read_head(JsonObject& root, int format) {
  const JsonValue& version = root.at("belfry");
  if (d_.integer(version, 1) > format) d_.fail(version, fmt::format("the file is of format {}; this program reads format {}{}", version.integer, format, format == kGraphFormat && version.integer == kPlanFormat ? " of graphs; plans, which are of format 2, have a key \"plan\"" : ""));
  if (version.integer < format)
    d_.fail(version, fmt::format("a plan of format {}, whose byte offsets mean something else; its decisions hold: write {} here, and  belfry place {} -o {}  derives the rest anew", version.integer, format, d_.file(), d_.file()));
  if (const JsonValue* v = root.find("name")) name_ = d_.text(*v);
  if (const JsonValue* v = root.find("rows")) {
    Dim rows = placed(d_, *v, [&] { return parse_dim(d_.text(*v)); });
    if (rows.factor != 1 || !rows.symbolic()) d_.fail(*v, "\"rows\" names one symbol, such as \"batch\"");
    rows_ = rows.symbol;
  }
  if (const JsonValue* v = root.find("precision")) {
    precision_ = placed(d_, *v, [&] { return parse_precision(d_.text(*v)); });
  }
  if (const JsonValue* v = root.find("functions")) d_.fail(*v, "\"functions\" is reserved: write its nodes out");
  const JsonValue* opset = root.find("opset");
  if (!opset) return;
  for (std::size_t i = 0; i < d_.object(*opset).items.size(); ++i) {
    const JsonValue& v = opset->items[i];
    if (opset->keys[i] == "note") continue;
    const OpDef& op = placed(d_, v, [&]() -> const OpDef& { return ops_->at(opset->keys[i]); });
    // What attributes an op gains makes no version: the schema's defaults stand for them.
    if (d_.integer(v, 1) > op.version) d_.fail(v, fmt::format("the file uses version {} of the op '{}'; this program knows version {}", v.integer, op.name, op.version));
    if (v.integer < op.version) d_.fail(v, fmt::format("the file uses version {} of the op '{}', which reads other inputs in version {}; make the file anew from the graph that it was made of", v.integer, op.name, op.version));
  }
}

const OpDef& RecordReader::op_of(const JsonValue& v) const {
  const std::string& name = d_.text(v);
  const OpDef* op = nullptr;
  placed(d_, v, [&] { op = &ops_->at(name); });
  return *op;
}

Attributes RecordReader::read_attributes(const JsonValue* v, const OpDef& op) const {
  Attributes given;
  if (!v) return given;
  for (std::size_t i = 0; i < d_.object(*v).items.size(); ++i) {
    const std::string& key = v->keys[i];
    if (key == "note") continue;
    auto def = std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttributeDef& a) { return a.name == key; });
    if (def == op.attributes.end()) {
      std::vector<std::string> names;
      for (const AttributeDef& a : op.attributes) names.push_back(a.name);
      d_.fail(v->items[i], fmt::format("[{}] has no attribute '{}'; it has {}{}", op.name, key, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), did_you_mean(key, names)));
    }
    given.set(key, attribute_of(d_, v->items[i], def->kind, tensors_));
  }
  return given;
}

void RecordReader::read_common(JsonObject& line, NodeRecord& out) const {
  out.at = &line.value;
  out.name = d_.text(line.at("name"));
  if (const JsonValue* v = line.find("device")) out.device = device_of(d_, *v);
  if (const JsonValue* v = line.find("of")) out.of = d_.text(*v);
  if (const JsonValue* v = line.find("role")) out.role = placed(d_, *v, [&] { return parse_role(d_.text(*v)); });
}

NodeRecord RecordReader::read_source(JsonObject& line, const char* op) const {
  NodeRecord out;
  out.op = &ops_->at(op);
  read_common(line, out);
  for (const AttributeDef& def : out.op->attributes) {
    if (def.name == "init_value") continue;
    const JsonValue* v = def.fallback ? line.find(def.name) : &line.at(def.name);
    if (!v) continue;
    if (def.name == "init") {
      JsonObject init(d_, *v);
      out.attributes.set("init", d_.text(init.at("kind")));
      if (const JsonValue* with = init.find("value")) out.attributes.set("init_value", d_.real(*with));
      init.done();
    } else out.attributes.set(def.name, attribute_of(d_, *v, def.kind, tensors_));
  }
  return out;
}

NodeRecord RecordReader::read_node(JsonObject& line) const {
  NodeRecord out;
  read_common(line, out);
  const JsonValue& op = line.at("op");
  out.op = &op_of(op);
  if (out.op->name == kInput || out.op->name == kVariable) d_.fail(op, fmt::format("an {} stands in the list \"{}s\", not among the nodes", out.op->name, out.op->name));
  out.inputs_at = line.find("inputs");
  if (out.inputs_at)
    for (const JsonValue& v : d_.array(*out.inputs_at)) {
      out.inputs.push_back(v.kind == JsonValue::kNull ? "" : d_.text(v));
      if (v.kind == JsonValue::kText && v.text.empty()) d_.fail(v, "names no value; an input that is left out is null");
    }
  out.attributes = read_attributes(line.find("attributes"), *out.op);
  return out;
}

// ---------------------------------------------------------------- building

void RecordReader::refuse_cycle(const std::vector<NodeRecord>& records, const std::vector<std::vector<std::size_t>>& reads, const std::vector<bool>& done) const {
  std::size_t at = static_cast<std::size_t>(std::find(done.begin(), done.end(), false) - done.begin());
  std::vector<std::size_t> path;
  std::vector<bool> seen(records.size());
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    at = *std::find_if(reads[at].begin(), reads[at].end(), [&](std::size_t r) { return !done[r]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::string text = records[at].name;
  for (std::size_t i = 1; i < std::min<std::size_t>(path.size(), 8); ++i) text += " reads " + records[path[i]].name;
  d_.fail(*records[at].at, fmt::format("nodes form a cycle: {}{} reads {}", text, path.size() > 8 ? " … which" : "", records[at].name));
}

std::vector<std::size_t> RecordReader::sorted(const std::vector<NodeRecord>& records, const std::unordered_map<std::string, std::size_t>& by_name) const {
  std::vector<std::vector<std::size_t>> reads(records.size()), readers(records.size());
  std::vector<std::size_t> left(records.size()), out;
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (std::size_t k = 0; k < records[i].inputs.size(); ++k) {
      const std::string& input = records[i].inputs[k];
      if (input.empty()) continue;
      auto maker = by_name.find(node_of(input));
      if (maker == by_name.end()) {
        std::vector<std::string> names;
        for (const NodeRecord& r : records) names.push_back(r.name);
        d_.fail(records[i].inputs_at->items[k], fmt::format("there is no value '{}'{}", input, did_you_mean(input, names)));
      }
      reads[i].push_back(maker->second);
    }
    std::sort(reads[i].begin(), reads[i].end());
    reads[i].erase(std::unique(reads[i].begin(), reads[i].end()), reads[i].end());
    left[i] = reads[i].size();
    for (std::size_t r : reads[i]) readers[r].push_back(i);
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  std::vector<bool> done(records.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    if (!left[i]) ready.push(i);
  while (!ready.empty()) {
    std::size_t i = ready.top();
    ready.pop();
    done[i] = true;
    out.push_back(i);
    for (std::size_t r : readers[i])
      if (--left[r] == 0) ready.push(r);
  }
  if (out.size() < records.size()) refuse_cycle(records, reads, done);
  return out;
}

void RecordReader::add(Graph& graph, const NodeRecord& r) const {
  std::vector<Value> inputs;
  for (std::size_t k = 0; k < r.inputs.size(); ++k) {
    if (r.inputs[k].empty()) {
      inputs.emplace_back();
      continue;
    }
    auto v = graph.find(r.inputs[k]);
    if (!v) d_.fail(r.inputs_at->items[k], fmt::format("there is no value '{}': the node '{}' has no such output", r.inputs[k], node_of(r.inputs[k])));
    inputs.push_back(graph.value(*v));
  }
  graph.cursor = {"", r.device, -1, r.role, {}, nullptr};
  placed(d_, *r.at, [&] {
    const Value made = graph.add(*r.op, inputs, r.attributes, r.name.empty() ? "?" : r.name);
    graph.edit(made.id.node).source = {kept(d_.file()), r.at->line};  // from here on: an error above has the place already
  });
}

Graph RecordReader::build(std::vector<NodeRecord> records) const {
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < records.size(); ++i)
    if (auto [at, fresh] = by_name.try_emplace(records[i].name, i); !fresh)
      d_.fail(*records[i].at, fmt::format("the name '{}' is taken at line {}", records[i].name, records[at->second].at->line));
  Graph graph(ops_, name_);
  graph.row_symbol = rows_;
  graph.precision = precision_;
  for (std::size_t i : sorted(records, by_name)) add(graph, records[i]);
  graph.cursor = {};
  for (const NodeRecord& r : records) {
    if (r.of.empty()) continue;
    NodeId of = graph.find_node(r.of);
    if (of < 0) d_.fail(*r.at->find("of"), fmt::format("there is no node '{}'", r.of));
    graph.edit(graph.find_node(r.name)).of = of;
  }
  return graph;
}

// ---------------------------------------------------------------- what stands beside the lists

ValueId RecordReader::value(const Graph& graph, const JsonValue& v) const {
  const std::string& name = d_.text(v);
  return placed(d_, v, [&] { return graph.at(name); });
}

/// Which kinds there are, and their options, is not the reader's to know.
Attributes RecordReader::read_schedule(const JsonValue& v) const {
  Attributes out;
  out.set("kind", d_.text(JsonObject(d_, v).at("kind")));
  for (std::size_t i = 0; i < v.items.size(); ++i)
    if (v.keys[i] != "note" && v.keys[i] != "kind") out.set(v.keys[i], plain_attribute_of(d_, v.items[i]));
  return out;
}

void RecordReader::read_train(const JsonValue& v, Graph& graph) const {
  JsonObject train(d_, v);
  TrainSpec out;
  const JsonValue& loss = train.at("loss");
  if (loss.kind == JsonValue::kText) out.losses.push_back(value(graph, loss));
  else
    for (const JsonValue& l : d_.array(loss)) out.losses.push_back(value(graph, l));
  if (out.losses.empty()) d_.fail(loss, "training needs a loss");
  for (ValueId l : out.losses)
    if (!is_float(graph.type(l).dtype) || !graph.type(l).shape.empty()) d_.fail(loss, fmt::format("a loss is a float scalar, but '{}' is {}; take its mean", graph.name_of(l), to_string(graph.type(l))));
  const JsonValue& optimizer = d_.object(train.at("optimizer"));
  JsonObject(d_, optimizer).at("kind");
  for (std::size_t i = 0; i < optimizer.items.size(); ++i) {
    const std::string& key = optimizer.keys[i];
    const JsonValue& option = optimizer.items[i];
    if (key == "note") continue;
    if (key == "kind") out.optimizer = d_.text(option);
    else if (key == "learning_rate" && option.kind == JsonValue::kText) out.learning_rate = value(graph, option);
    else if (key == "learning_rate" && option.kind == JsonValue::kObject) out.schedule = read_schedule(option);
    else out.options.set(key, plain_attribute_of(d_, option));
  }
  train.done();
  graph.train = std::move(out);
}

void RecordReader::read_tail(JsonObject& root, Graph& graph) const {
  auto list = [&](const char* key, std::vector<ValueId>& out) {
    if (const JsonValue* v = root.find(key))
      for (const JsonValue& e : d_.array(*v)) out.push_back(value(graph, e));
  };
  auto object = [&](const char* key, auto&& take) {
    if (const JsonValue* v = root.find(key))
      for (std::size_t i = 0; i < d_.object(*v).items.size(); ++i)
        if (v->keys[i] != "note") take(v->keys[i], v->items[i], value(graph, v->items[i]));
  };
  list("outputs", graph.outputs);
  list("losses", graph.losses);
  object("metrics", [&](const std::string& key, const JsonValue&, ValueId v) { graph.metrics[key] = v; });
  object("updates", [&](const std::string& key, const JsonValue& at, ValueId v) {
    NodeId w = graph.find_node(key);
    if (w < 0 || graph.node(w).op->name != kVariable) d_.fail(at, fmt::format("'{}' is no variable: it cannot be updated", key));
    if (graph.type(v) != graph.node(w).types[0]) d_.fail(at, fmt::format("the update of '{}' is {}, not {}", key, to_string(graph.type(v)), to_string(graph.node(w).types[0])));
    graph.updates[w] = v;
  });
  if (const JsonValue* v = root.find("gate")) {
    graph.gate = value(graph, *v);
    if (graph.type(graph.gate) != TensorType{boolean, {}}) d_.fail(*v, fmt::format("a gate is a bool scalar, but '{}' is {}", graph.name_of(graph.gate), to_string(graph.type(graph.gate))));
  }
  if (const JsonValue* v = root.find("train")) read_train(*v, graph);
  std::map<std::string, ValueId> aliases;  // names of nodes win, and aliases do not name each other
  object("aliases", [&](const std::string& key, const JsonValue& at, ValueId v) {
    if (graph.find_node(key) >= 0) d_.fail(at, fmt::format("the alias '{}' is a node's name", key));
    aliases[key] = v;
  });
  graph.aliases = std::move(aliases);
}

Graph read_graph(const std::string& text, const std::string& file, std::shared_ptr<const OpSet> ops, const TensorStore& tensors, std::string* state) {
  const DefaultFloats floats;
  JsonDocument document(text, file);
  JsonObject root(document, document.root());
  RecordReader reader(document, std::move(ops), tensors);
  reader.read_head(root);
  if (const JsonValue* plan = root.find("plan")) document.fail(*plan, "the file is a plan, not a graph");
  std::vector<NodeRecord> records;
  auto read = [&](const char* key, auto&& read_line) {
    if (const JsonValue* list = root.find(key))
      for (const JsonValue& v : document.array(*list)) {
        JsonObject line(document, v);
        records.push_back(read_line(line));
        line.done();
      }
  };
  read("inputs", [&](JsonObject& line) { return reader.read_source(line, kInput); });
  read("variables", [&](JsonObject& line) { return reader.read_source(line, kVariable); });
  read("nodes", [&](JsonObject& line) { return reader.read_node(line); });
  Graph graph = reader.build(std::move(records));
  reader.read_tail(root, graph);
  if (const JsonValue* v = root.find("state")) {
    const std::string& name = document.text(*v);
    if (state) *state = name;
  }
  root.done();
  return graph;
}

}  // namespace belfry
