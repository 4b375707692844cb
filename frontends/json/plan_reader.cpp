#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/plan_folds.h>
#include <belfry/frontends/json/plan_graph.h>
#include <belfry/graph/float_environment.h>
#include <belfry/graph/plan/verify.h>

namespace belfry {

namespace {

/// Attributes of the ops that only plans have.
const std::vector<AttributeDef>& structural_attributes() {
  static const std::vector<AttributeDef> table = {AttributeDef("how", "same").one_of({"sum", "max", "mean", "concat_rows", "stack", "same", "ranges"}), AttributeDef("axis", 0).between(0, 31), {"kind", ""}};
  return table;
}

bool is_structural(const std::string& op) {
  for (const char* name : {kCopy, kSplit, kAggregate, kAllGather, kPreAggregate, kFused, kFetch, kStore})
    if (op == name) return true;
  return false;
}

class PlanReader {
 public:
  PlanReader(const JsonDocument& document, std::shared_ptr<const OpSet> ops, const TensorStore& tensors)
      : d_(document), ops_(std::move(ops)), records_(document, ops_, tensors) {}

  PlacedGraph run() {
    JsonObject root(d_, d_.root());
    const JsonValue* plan = root.find("plan");
    if (!plan) d_.fail(d_.root(), "the file is a graph, not a plan: place it first");
    records_.read_head(root, kPlanFormat);
    JsonObject head(d_, *plan);
    read_decisions(head);
    read_tables(head);
    read_nodes(root);
    for (TowerClass& c : plan_.classes) c.pattern.resize(std::max(c.pattern.size(), plan_.vectors.size()));  // nodes may have been moved by hand
    for (std::size_t i = 0; i < lines_.size(); ++i) index(lines_[i], static_cast<int>(i));
    for (std::size_t i = 0; i < lines_.size(); ++i) connect(*lines_[i].at, plan_.nodes[i]);
    read_derived(head);
    head.done();
    plan_.graph = std::make_shared<const Graph>(graph_of_lines(d_, records_, plan_, lines_, root));
    root.done();
    for (std::size_t i = 0; i < lines_.size(); ++i) match_user(d_, plan_, lines_[i], plan_.nodes[i]);
    for (std::size_t i = 0; i < results_.size(); ++i)
      if (const std::string why = objection_to_result(plan_, plan_.fetches[i].first, plan_.fetches[i].second); !why.empty()) d_.fail(*results_[i], why);
    plan_.placement = placement_of(plan_);
    return std::move(plan_);
  }

 private:
  int number(const JsonValue& v, std::int64_t low, std::int64_t high = kMostTowers) const { return static_cast<int>(d_.integer(v, low, high)); }
  std::int64_t bytes(const JsonValue& v) const { return d_.integer(v, 0, kMostBytes); }

  // ---------------------------------------------------------------- the plan's own object

  void read_decisions(JsonObject& head) {
    plan_.placement.strategy = d_.text(head.at("strategy"));
    if (const JsonValue* v = head.find("options")) plan_.placement.options = d_.text(*v);
    plan_.towers = number(head.at("towers"), 1);
    plan_.batch = d_.integer(head.at("batch"), 1, kMostBytes);
    const JsonValue &combine = head.at("combine"), &order = head.at("order");
    plan_.combine = placed(d_, combine, [&] { return parse_combine(d_.text(combine)); });
    plan_.threads = number(head.at("threads"), 1, kMostThreads);
    plan_.placement.order = placed(d_, order, [&] { return parse_phase_order(d_.text(order)); });
    if (const JsonValue* v = head.find("collectives")) plan_.placement.collectives = placed(d_, *v, [&] { return parse_collectives(d_.text(*v)); });
    if (const JsonValue* v = head.find("isa")) plan_.isa = d_.text(*v);
    if (const JsonValue* v = head.find("libraries")) plan_.libraries = d_.text(*v);
    plan_.arithmetic_hash = d_.text(head.at("arithmetic_hash"));
    plan_.cluster = cluster_of(d_, head.at("cluster"));
    if (const JsonValue* v = head.find("vectors"))
      for (const JsonValue& e : d_.array(*v)) plan_.vectors.push_back(vector_of(d_, e, plan_.cluster, plan_.towers));
  }

  template <class F>
  void each(JsonObject& head, const char* key, F&& f) {
    if (const JsonValue* v = head.find(key))
      for (const JsonValue& e : d_.array(*v)) {
        JsonObject o(d_, e);
        f(o);
        o.done();
      }
  }

  void read_derived(JsonObject& head) {
    if (const JsonValue* v = head.find("frames")) plan_.frames = frames_of(d_, *v, plan_.cluster);
    else plan_.frames.resize(plan_.cluster.devices.size());
    if (const JsonValue* v = head.find("streams")) plan_.streams = streams_of(d_, *v, plan_.cluster);
    auto object = [&](const char* key, auto&& take) {
      if (const JsonValue* v = head.find(key))
        for (std::size_t i = 0; i < d_.object(*v).items.size(); ++i)
          if (v->keys[i] != "note") take(v->keys[i], v->items[i]);
    };
    object("fetches", [&](const std::string& key, const JsonValue& v) {
      ValueIndex f = value(v);
      if (plan_.maker(f).op != kFetch) d_.fail(v, fmt::format("'{}' is no fetch", v.text));
      plan_.fetches.emplace_back(key, f);
      results_.push_back(&v);
    });
    object("applies", [&](const std::string& key, const JsonValue& v) {
      auto variable = values_.find(key);
      if (variable == values_.end() || plan_.maker(variable->second).op != kVariable) d_.fail(v, fmt::format("'{}' is no variable of the plan", key));
      plan_.updates.emplace_back(variable->second, value(v));
    });
  }

  void read_tables(JsonObject& head) {
    each(head, "classes", [&](JsonObject& o) {
      TowerClass c;
      c.towers = numbers_of(d_, o.at("towers"), plan_.towers);
      c.share = d_.integer(o.at("share"), 0, kMostBytes);
      for (const JsonValue& k : d_.array(o.at("kinds"))) c.kinds.push_back(d_.text(k));
      for (const JsonValue& p : d_.array(o.at("pattern"))) {
        if (d_.array(p).size() != 2) d_.fail(p, "is a pair of device and space");
        c.pattern.push_back({number(p.items[0], -1), number(p.items[1], -1)});
      }
      for (const JsonValue& f : d_.array(o.at("frames"))) {
        const std::size_t sizes = d_.array(f).size();
        if (sizes != 2 && sizes != 3) d_.fail(f, "is kept and transient bytes, and those of the tail");
        c.frame.push_back({bytes(f.items[0]), bytes(f.items[1]), sizes == 3 ? bytes(f.items[2]) : 0});
      }
      plan_.classes.push_back(std::move(c));
    });
    each(head, "groups", [&](JsonObject& o) { plan_.groups.push_back({devices_of(d_, o.at("devices"), plan_.cluster), bytes(o.at("state")), bytes(o.at("region"))}); });
  }

  // ---------------------------------------------------------------- nodes

  /// Inputs and variables stand in lists of their own; their positions put them back among the nodes.
  void read_nodes(JsonObject& root) {
    std::vector<std::pair<PlanLine, PlanNode>> nodes;
    std::map<int, std::pair<PlanLine, PlanNode>> sources;
    auto list = [&](const char* key, auto&& take) {
      if (const JsonValue* v = root.find(key))
        for (const JsonValue& e : d_.array(*v)) {
          JsonObject line(d_, e);
          take(line);
          line.done();
        }
    };
    for (const char* op : {kInput, kVariable})
      list(op == kInput ? "inputs" : "variables", [&](JsonObject& line) {
        std::pair<PlanLine, PlanNode> out = read_source(line, op);
        const JsonValue& at = line.at("position");
        if (!sources.emplace(number(at, 0, kMostNodes), std::move(out)).second) d_.fail(at, "two nodes have this position");
      });
    list("nodes", [&](JsonObject& line) { nodes.push_back(read_node(line)); });
    for (auto& [line, node] : put_in_place(std::move(sources), std::move(nodes))) {
      lines_.push_back(std::move(line));
      plan_.nodes.push_back(std::move(node));
    }
  }

  std::pair<PlanLine, PlanNode> read_source(JsonObject& line, const char* op) {
    std::pair<PlanLine, PlanNode> out;
    out.first.at = &line.value;
    out.first.record = records_.read_source(line, op);
    PlanNode& n = out.second;
    n.name = out.first.record.name;
    n.op = op;
    n.def = out.first.record.op;
    n.role = out.first.record.role;
    n.attributes = placed(d_, line.value, [&] { return checked(n.def->attributes, out.first.record.attributes, fmt::format("[{}] node '{}':", n.op, n.name)); });
    read_placing(line, n);
    return out;
  }

  std::pair<PlanLine, PlanNode> read_node(JsonObject& line) {
    std::pair<PlanLine, PlanNode> out;
    PlanLine& l = out.first;
    PlanNode& n = out.second;
    l.at = &line.value;
    const JsonValue& op = line.at("op");
    n.op = d_.text(op);
    n.inserted = line.find("cause") != nullptr;
    if (const JsonValue* v = line.find("again")) n.again = d_.flag(*v);
    if (n.again && !n.inserted) d_.fail(line.value, "is computed again, but has no \"cause\"");
    if (is_structural(n.op)) read_structural(line, n);
    else {
      l.record = records_.read_node(line);
      n.def = l.record.op;
      n.name = l.record.name;
      n.role = l.record.role;
      n.attributes = placed(d_, line.value, [&] { return checked(n.def->attributes, l.record.attributes, fmt::format("[{}] node '{}':", n.op, n.name)); });
    }
    if (const JsonValue* members = line.find("members")) {
      if (n.inserted) d_.fail(*members, "an inserted node has no members");
      for (const JsonValue& m : d_.array(*members)) {
        JsonObject member(d_, m);
        l.members.push_back(records_.read_node(member));
        if (const JsonValue* at = member.find("at")) l.positions.push_back(number(*at, 0, kMostNodes));
        const JsonValue* kept = member.find("kept");
        l.kept.push_back(kept && d_.flag(*kept));
        if (l.kept.back() && l.members.size() == members->items.size()) d_.fail(*kept, "the last member is the fused node's own value: only those before it are kept besides");
        member.done();
      }
      if (l.positions.size() != (l.members.size() > 1 ? l.members.size() : 0)) d_.fail(*members, "several members have their place \"at\" each, and one has none");
    }
    if (const JsonValue* at = n.inserted || l.members.size() > 1 ? nullptr : line.find("at")) l.position = number(*at, 0, kMostNodes);
    if (!n.inserted && !n.def && l.members.empty()) d_.fail(line.value, fmt::format("'{}' is neither inserted (it has no \"cause\") nor does it say what it stands for (\"members\")", n.name));
    read_placing(line, n);
    return out;
  }

  void read_structural(JsonObject& line, PlanNode& n) {
    n.name = d_.text(line.at("name"));
    if (const JsonValue* v = line.find("role")) n.role = placed(d_, *v, [&] { return parse_role(d_.text(*v)); });
    if (line.find("inputs") == nullptr || d_.array(*line.find("inputs")).empty()) d_.fail(line.value, fmt::format("a node of op '{}' reads a value", n.op));
    const JsonValue* attributes = line.find("attributes");
    Attributes given;
    if (attributes)
      for (std::size_t i = 0; i < d_.object(*attributes).items.size(); ++i)
        if (attributes->keys[i] != "note") given.set(attributes->keys[i], plain_attribute_of(d_, attributes->items[i]));
    placed(d_, attributes ? *attributes : line.value, [&] {
      checked(structural_attributes(), given, fmt::format("[{}] node '{}':", n.op, n.name));
      bool joins = n.op == kAggregate || n.op == kPreAggregate || n.op == kFetch || n.op == kAllGather;
      if (joins && !given.find("how")) throw UserError(fmt::format("[{}] node '{}' needs the attribute 'how'", n.op, n.name));
      if (n.op == kFused && !given.find("kind")) throw UserError(fmt::format("[{}] node '{}' needs the attribute 'kind'", n.op, n.name));
      if (joins && given.text("how") == "concat_rows" && !given.find("axis")) throw UserError(fmt::format("[{}] node '{}' needs the attribute 'axis'", n.op, n.name));
    });
    n.attributes = std::move(given);
  }

  int vector_index(const JsonValue& v) { return vector_index(vector_of(d_, v, plan_.cluster, plan_.towers)); }
  int vector_index(std::vector<int> devices) {
    auto at = std::find(plan_.vectors.begin(), plan_.vectors.end(), devices);
    auto index = static_cast<int>(at - plan_.vectors.begin());
    if (at == plan_.vectors.end()) plan_.vectors.push_back(std::move(devices));
    return index;
  }

  /// Those with rows, then those without.
  void read_towers(const JsonValue& assigned, PlanNode& n) {
    std::vector<int> devices = vector_of(d_, assigned, plan_.cluster, plan_.towers);
    const auto idle = devices.begin() + plan_.present();
    if (std::any_of(idle, devices.end(), [](int d) { return d >= 0; })) n.idle = *alike_.insert(std::vector<int>(idle, devices.end())).first;
    std::fill(idle, devices.end(), -1);
    n.vector = vector_index(std::move(devices));
  }

  /// All that assign, lower and schedule say, but for names of values.
  void read_placing(JsonObject& line, PlanNode& n) {
    const JsonValue &scope = line.at("scope"), &assigned = line.at("assigned");
    n.scope = placed(d_, scope, [&] { return parse_scope(d_.text(scope)); });
    if ((n.op == kVariable) != (n.scope == Scope::state)) d_.fail(scope, fmt::format("the scope of '{}' cannot be {}", n.name, to_string(n.scope)));
    if (n.scope == Scope::tower) read_towers(assigned, n);
    else n.holders = *alike_.insert(devices_of(d_, assigned, plan_.cluster)).first;
    if (const JsonValue* v = line.find("ranges")) n.ranged = d_.flag(*v);
    if (const JsonValue* v = line.find("once")) n.once = d_.flag(*v);
    if (n.ranged && n.scope == Scope::tower) d_.fail(line.value, fmt::format("'{}' runs in the towers, and only what is outside them can be in ranges: take \"ranges\" out", n.name));
    if (const JsonValue* v = line.find("sum")) n.sum = placed(d_, *v, [&] { return parse_sum_way(d_.text(*v)); });
    if (const JsonValue* v = line.find("bucket")) n.bucket = number(*v, 1, kMostTowers);
    n.reason = d_.text(line.at("reason"));
    n.epoch = number(line.at("epoch"), -1);
    n.order = number(line.at("order"), 0, kMostNodes);
    const JsonValue* phases = n.scope == Scope::tower ? &line.at("phases") : line.find("phases");
    if (phases)
      for (const JsonValue& p : d_.array(*phases)) n.phases.push_back(number(p, -1));
    if (const JsonValue* v = line.find("owners")) n.owners = vector_index(*v);
    if (n.owners < 0 && (n.scope == Scope::device || n.op == kPreAggregate)) d_.fail(line.value, fmt::format("'{}' stands once per device, but lacks \"owners\": the devices of those whose parts it joins", n.name));
    n.by_class.reset(n.scope == Scope::tower ? plan_.classes.size() : 0);
    n.by_group.reset(plan_.groups.size());
    read_variants(line.find("by_class"), n, n.by_class);
    read_variants(line.find("by_group"), n, n.by_group);
    for (const char* later : {"outputs", "waits", "donates"}) line.find(later);
  }

  void read_variants(const JsonValue* list, const PlanNode& n, Variants& out) const {
    if (!list) return;
    if (d_.array(*list).size() != out.size()) d_.fail(*list, fmt::format("'{}' has {} variants, not {}", n.name, out.size(), list->items.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (list->items[i].kind == JsonValue::kNull) continue;
      JsonObject o(d_, list->items[i]);
      Variant& variant = out[i];
      if (const JsonValue* v = o.find("kernel")) variant.kernel = d_.text(*v);
      if (const JsonValue* v = o.find("scratch_bytes")) variant.scratch_bytes = bytes(*v);
      if (const JsonValue* v = o.find("scratch")) variant.scratch = slot(*v);
      if (const JsonValue* v = o.find("outputs"))
        for (const JsonValue& s : d_.array(*v)) variant.outputs.push_back(slot(s));
      o.done();
    }
  }

  Slot slot(const JsonValue& v) const {
    if (v.kind == JsonValue::kNull) return {};
    const bool listed = d_.array(v).size() > 1 && v.items[1].kind == JsonValue::kArray;
    if (v.items.size() != 2 && (v.items.size() != 3 || listed)) d_.fail(v, "is [region, offset], [region, offset, stride] or [region, [offset, ...]]");
    Slot out;
    out.region = placed(d_, v.items[0], [&] { return parse_region(d_.text(v.items[0])); });
    if (listed) {
      for (const JsonValue& place : v.items[1].items) out.more.push_back(bytes(place));
      if (out.more.size() < 2) d_.fail(v, "has a list of fewer than two offsets");
      out.offset = out.more.front();
      out.more.erase(out.more.begin());
      return out;
    }
    out.offset = bytes(v.items[1]);
    if (v.items.size() == 3) out.stride = d_.integer(v.items[2], -kMostBytes, kMostBytes);
    return out;
  }

  // ---------------------------------------------------------------- values by name

  void index(const PlanLine& line, int node) {
    PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
    const JsonValue* outputs = line.at->find("outputs");
    if (!outputs) d_.fail(*line.at, "lacks the key \"outputs\"");
    for (const JsonValue& v : d_.array(*outputs)) {
      JsonObject o(d_, v);
      PlanValue value;
      auto k = n.outputs.size();
      value.name = k ? fmt::format("{}:{}", n.name, k) : n.name;
      if (const JsonValue* name = o.find("name")) {
        if (n.op != kFused || k == 0) d_.fail(*name, fmt::format("output {} of '{}' has its node's name: only fused nodes give values of their members'", k, n.name));
        value.name = d_.text(*name);
      }
      value.type = {dtype_of(d_, o.at("dtype")), shape_of(d_, o.at("shape"))};
      const JsonValue& state = o.at("state");
      value.state = placed(d_, state, [&] { return parse_split_state(d_.text(state)); });
      if (const JsonValue* read = o.find("read")) value.read = d_.flag(*read);
      o.done();
      check_size(v, value);
      value.maker = node;
      value.output = static_cast<int>(k);
      auto index = static_cast<ValueIndex>(plan_.values.size());
      if (!values_.emplace(value.name, index).second) d_.fail(*line.at, fmt::format("the name '{}' is taken", value.name));
      plan_.values.push_back(std::move(value));
      n.outputs.push_back(index);
    }
    if (n.outputs.empty()) d_.fail(*outputs, fmt::format("'{}' makes no value", n.name));
  }

  void check_size(const JsonValue& at, const PlanValue& v) const {
    __int128 size = static_cast<__int128>(size_of(v.type.dtype));
    for (const Dim& dim : v.type.shape) {
      size *= dim.factor;
      if (dim.symbolic()) size *= plan_.batch;
      if (size > kMostBytes) d_.fail(at, fmt::format("{} has more than {} bytes", to_string(v.type), kMostBytes));
    }
  }

  ValueIndex value(const JsonValue& v) const {
    auto at = values_.find(d_.text(v));
    if (at != values_.end()) return at->second;
    std::vector<std::string> names;
    for (const auto& [name, i] : values_) names.push_back(name);
    std::sort(names.begin(), names.end());
    d_.fail(v, fmt::format("the plan has no value '{}'{}", v.text, did_you_mean(v.text, names)));
  }

  void connect(const JsonValue& line, PlanNode& n) {
    auto pairs = [&](const char* key, auto&& take) {
      if (const JsonValue* v = line.find(key))
        for (const JsonValue& e : d_.array(*v)) {
          if (d_.array(e).size() != 2) d_.fail(e, "is a pair");
          take(e.items[0], e.items[1]);
        }
    };
    if (const JsonValue* v = line.find("inputs"))
      for (const JsonValue& e : d_.array(*v)) n.inputs.push_back(e.kind == JsonValue::kNull && (n.def || n.op == kFused) ? -1 : value(e));
    pairs("waits", [&](const JsonValue& a, const JsonValue& b) { n.waits.push_back({placed(d_, a, [&] { return parse_relation(d_.text(a)); }), value(b)}); });
    pairs("donates", [&](const JsonValue& a, const JsonValue& b) { n.donates.emplace_back(value(a), value(b)); });
  }

  const JsonDocument& d_;
  std::shared_ptr<const OpSet> ops_;
  RecordReader records_;
  PlacedGraph plan_;
  std::vector<PlanLine> lines_;
  std::vector<const JsonValue*> results_;
  std::unordered_map<std::string, ValueIndex> values_;
  std::set<DeviceList> alike_;  ///< equal lists are kept once
};

}  // namespace

PlacedGraph read_plan(const std::string& text, const std::string& file, std::shared_ptr<const OpSet> ops, const TensorStore& tensors) {
  const DefaultFloats floats;
  JsonDocument document(text, file);
  return PlanReader(document, std::move(ops), tensors).run();
}

std::shared_ptr<const Graph> graph_of_plan(const PlacedGraph& plan) {
  std::map<std::string, HostTensor> held;
  TensorStore store{[&](const std::string& name, const HostTensor& t) { held.insert_or_assign(name, t); }, [&](const std::string& name) { return held.at(name); }};
  return read_plan(write_plan(plan, store), "plan", plan.graph->shared_ops(), store).graph;
}

}  // namespace belfry
