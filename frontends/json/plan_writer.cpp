#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/plan_folds.h>
#include <belfry/frontends/json/records.h>

namespace belfry {

namespace {

std::string number(std::int64_t v) { return std::to_string(v); }

class PlanWriter {
 public:
  PlanWriter(const PlacedGraph& plan, const TensorStore& tensors) : plan_(plan), graph_(*plan.graph), records_(graph_, tensors) {}

  std::string run() {
    check_names();
    std::vector<std::string> inputs, variables, nodes, entries = records_.head(kPlanFormat);
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      (n.op == kInput ? inputs : n.op == kVariable ? variables : nodes).push_back(node_line(n, static_cast<int>(i)));
    }
    entries.push_back(plan_entry());
    auto list = [&](const char* key, const std::vector<std::string>& lines) { entries.push_back(fmt::format("\"{}\": {}", key, json_lines(lines))); };
    list("inputs", inputs);
    list("variables", variables);
    list("nodes", nodes);
    if (auto idle = idle_lines(); !idle.empty()) list("idle", idle);
    for (std::string& e : records_.tail()) entries.push_back(std::move(e));
    return json_file(entries);
  }

 private:
  void check_names() const {
    std::set<std::string> names;
    for (const PlanNode& n : plan_.nodes) {
      if (!names.insert(n.name).second) throw UserError(fmt::format("two nodes of the plan are called '{}': rename the graph's node of that name", n.name));
      for (std::size_t k = 0; k < n.outputs.size(); ++k)
        if (!(n.op == kFused && k) && plan_.value(n.outputs[k]).name != output_name(n, static_cast<int>(k))) throw InternalError(fmt::format("output {} of '{}' is called '{}'", k, n.name, plan_.value(n.outputs[k]).name));
    }
  }

  static std::string output_name(const PlanNode& n, int k) { return k ? fmt::format("{}:{}", n.name, k) : n.name; }
  std::string name(ValueIndex v) const { return v < 0 ? "null" : json_text(plan_.value(v).name); }
  std::string names(const std::vector<ValueIndex>& values) const {
    std::vector<std::string> out;
    for (ValueIndex v : values) out.push_back(name(v));
    return json_list(out);
  }

  // ---------------------------------------------------------------- the plan's own object

  std::string plan_entry() const {
    std::vector<std::string> out;
    auto add = [&](const char* key, const std::string& json) { out.push_back(fmt::format("\"{}\": {}", key, json)); };
    auto add_lines = [&](const char* key, const std::vector<std::string>& lines) {
      if (!lines.empty()) add(key, fmt::format("[\n      {}\n    ]", fmt::join(lines, ",\n      ")));
    };
    const Placement& p = plan_.placement;
    add("strategy", json_text(p.strategy));
    if (!p.options.empty()) add("options", json_text(p.options));
    add("towers", number(plan_.towers));
    add("batch", number(plan_.batch));
    add("combine", json_text(to_string(plan_.combine)));
    add("threads", number(plan_.threads));
    add("order", json_text(to_string(p.order)));
    if (p.collectives != Collectives::tree) add("collectives", json_text(to_string(p.collectives)));
    if (!plan_.isa.empty()) add("isa", json_text(plan_.isa));
    if (!plan_.libraries.empty()) add("libraries", json_text(plan_.libraries));
    add("arithmetic_hash", json_text(plan_.arithmetic_hash));
    add("cluster", fmt::format("{{{}}}", fmt::join(cluster_entries(plan_.cluster), ", ")));
    std::vector<std::string> lines;
    for (const auto& v : plan_.vectors) lines.push_back(json_of_vector(v, plan_.cluster));
    add_lines("vectors", lines);
    lines.clear();
    for (const TowerClass& c : plan_.classes) lines.push_back(class_line(c));
    add_lines("classes", lines);
    lines.clear();
    for (const DeviceGroup& g : plan_.groups) lines.push_back(fmt::format("{{\"devices\": {}, \"state\": {}, \"region\": {}}}", json_of_devices(g.devices, plan_.cluster), g.state, g.region));
    add_lines("groups", lines);
    add_lines("frames", frame_lines(plan_));
    add_lines("streams", stream_lines(plan_));
    LineWriter fetches, updates;
    for (const auto& [name, v] : plan_.fetches) {
      std::string key = json_text(name);
      fetches.add(std::string_view(key).substr(1, key.size() - 2), this->name(v));
    }
    for (auto [variable, v] : plan_.updates) updates.add(plan_.value(variable).name, name(v));
    add("fetches", fetches.text());
    add("applies", updates.text());
    return fmt::format("\"plan\": {{\n    {}\n  }}", fmt::join(out, ",\n    "));
  }

  std::string class_line(const TowerClass& c) const {
    std::vector<std::string> kinds, pattern, frames;
    for (const std::string& k : c.kinds) kinds.push_back(json_text(k));
    for (const LocalPlace& p : c.pattern) pattern.push_back(fmt::format("[{}, {}]", p.device, p.space));
    for (const FrameSize& f : c.frame) frames.push_back(f.tail ? fmt::format("[{}, {}, {}]", f.kept, f.transient, f.tail) : fmt::format("[{}, {}]", f.kept, f.transient));
    return fmt::format("{{\"towers\": {}, \"share\": {}, \"kinds\": {}, \"pattern\": {}, \"frames\": {}}}", json_of_numbers(c.towers), c.share, json_list(kinds), json_list(pattern), json_list(frames));
  }

  // ---------------------------------------------------------------- nodes

  std::string node_line(const PlanNode& n, int position) {
    LineWriter line;
    const Node* user = n.user >= 0 ? &graph_.node(n.user) : nullptr;
    if (n.op == kInput || n.op == kVariable) records_.add_own(line, *user);
    else {
      line.add("name", json_text(n.name));
      line.add("op", json_text(n.op));
      if (!n.inputs.empty()) line.add("inputs", names(n.inputs));
      records_.add_attributes(line, n.def, n.attributes);
    }
    if (n.inserted) line.add("cause", user ? json_text(user->name) : "null");
    else if (n.members.empty() && n.def) {
      if (user->device) line.add("device", json_text(to_string(*user->device)));
      if (user->of >= 0) line.add("of", json_text(graph_.node(user->of).name));
    }
    if (n.again) line.add("again", "true");
    if (n.role != Role::forward) line.add("role", json_text(to_string(n.role)));
    if (n.op == kInput || n.op == kVariable) line.add("position", number(position));
    line.add("scope", json_text(to_string(n.scope)));
    line.add("assigned", n.scope == Scope::tower ? json_of_vector(devices_of_towers(plan_, n), plan_.cluster) : json_of_devices(n.holders, plan_.cluster));
    if (n.ranged) line.add("ranges", "true");
    if (n.once) line.add("once", "true");
    if (n.sum != SumWay::direct) line.add("sum", json_text(to_string(n.sum)));
    if (n.bucket) line.add("bucket", number(n.bucket));
    line.add("reason", json_text(n.reason));
    line.add("outputs", outputs(n));
    add_schedule(line, n);
    if (std::vector<std::string> variants = variant_texts(n.by_class); !variants.empty()) line.add("by_class", json_list(variants));
    if (std::vector<std::string> variants = variant_texts(n.by_group); !variants.empty()) line.add("by_group", json_list(variants));
    if (!n.again) add_members(line, n);  // else it has those of the node that it computes again
    if (!n.inserted && n.members.size() < 2) {
      if (n.user < furthest_) line.add("at", number(n.user));
      furthest_ = std::max(furthest_, n.user);
    }
    return line.text();
  }

  std::string outputs(const PlanNode& n) const {
    std::vector<std::string> out;
    for (ValueIndex i : n.outputs) {
      const PlanValue& v = plan_.value(i);
      LineWriter line;
      if (v.name != output_name(n, v.output)) line.add("name", json_text(v.name));
      line.add("dtype", json_text(name_of(v.type.dtype)));
      line.add("shape", json_of(v.type.shape));
      line.add("state", json_text(to_string(v.state)));
      if (!v.read) line.add("read", "false");
      out.push_back(line.text());
    }
    return json_list(out);
  }

  void add_schedule(LineWriter& line, const PlanNode& n) const {
    line.add("epoch", number(n.epoch));
    if (n.scope == Scope::tower) line.add("phases", fmt::format("[{}]", fmt::join(n.phases, ", ")));
    line.add("order", number(n.order));
    std::vector<std::string> waits, donates;
    for (const Wait& w : n.waits) waits.push_back(json_list({json_text(to_string(w.relation)), name(w.value)}));
    for (auto [u, variable] : n.donates) donates.push_back(json_list({name(u), name(variable)}));
    if (!waits.empty()) line.add("waits", json_list(waits));
    if (!donates.empty()) line.add("donates", json_list(donates));
    if (n.owners >= 0) line.add("owners", json_of_vector(plan_.vectors[static_cast<std::size_t>(n.owners)], plan_.cluster));
  }

  static std::string slot_text(const Slot& s) {
    if (s == Slot{}) return "null";
    if (!s.more.empty()) return fmt::format("[\"{}\", [{}, {}]]", to_string(s.region), s.offset, fmt::join(s.more, ", "));
    return s.stride ? fmt::format("[\"{}\", {}, {}]", to_string(s.region), s.offset, s.stride) : fmt::format("[\"{}\", {}]", to_string(s.region), s.offset);
  }

  /// Empty where no variant says anything.
  static std::vector<std::string> variant_texts(const Variants& variants) {
    std::vector<std::string> out;
    bool any = false;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const Variant& v = variants[i];
      LineWriter line;
      if (!v.kernel.empty()) line.add("kernel", json_text(v.kernel));
      if (v.scratch_bytes) line.add("scratch_bytes", number(v.scratch_bytes));
      if (v.scratch != Slot{}) line.add("scratch", slot_text(v.scratch));
      std::vector<std::string> slots;
      for (const Slot& s : v.outputs) slots.push_back(slot_text(s));
      if (!slots.empty()) line.add("outputs", json_list(slots));
      any |= !line.empty();
      out.push_back(line.empty() ? "null" : line.text());
    }
    return any ? out : std::vector<std::string>{};
  }

  /// What stands for other nodes of the graph, or for one of another op, holds them verbatim. Where several were made one,
  /// "at" is the place of each in the graph, as it is of nodes alone behind one that the graph has behind them.
  void add_members(LineWriter& line, const PlanNode& n) const {
    std::vector<Member> members = n.members;
    if (members.empty() && !n.inserted && !n.def) members.push_back({n.user});
    std::vector<std::string> out;
    for (const Member& m : members) out.push_back(members.size() > 1 ? placed_line(m.node, m.kept) : records_.node_line(m.node));
    if (!out.empty()) line.add("members", json_list(out));
  }

  std::string placed_line(NodeId id, bool kept = false) const {
    LineWriter line;
    records_.add_own(line, graph_.node(id));
    records_.add_common(line, graph_.node(id));
    if (kept) line.add("kept", "true");
    line.add("at", number(id));
    return line.text();
  }

  /// Nodes of the graph that no node of the plan stands for.
  std::vector<std::string> idle_lines() const {
    std::vector<bool> here(static_cast<std::size_t>(graph_.size()));
    for (const PlanNode& n : plan_.nodes) {
      if (!n.inserted) here[static_cast<std::size_t>(n.user)] = true;
      for (const Member& m : n.members) here[static_cast<std::size_t>(m.node)] = true;
    }
    std::vector<std::string> out;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (here[static_cast<std::size_t>(id)]) continue;
      const std::string& op = graph_.node(id).op->name;
      LineWriter line;
      if (op == kInput || op == kVariable) line.add("source", json_text(op));
      std::string rest = placed_line(id);
      out.push_back(line.empty() ? rest : fmt::format("{{\"source\": {}, {}", json_text(op), rest.substr(1)));
    }
    return out;
  }

  const PlacedGraph& plan_;
  const Graph& graph_;
  NodeId furthest_ = -1;  // of the nodes alone that are written
  RecordWriter records_;
};

}  // namespace

std::string write_plan(const PlacedGraph& plan, const TensorStore& tensors) { return PlanWriter(plan, tensors).run(); }

}  // namespace belfry
