#include <belfry/placer/lower.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

PlanNode inserted_node(const PlanNode& cause, std::string name, const char* op, ValueIndex input, Scope scope, std::string reason) {
  PlanNode n;
  n.name = std::move(name);
  n.op = op;
  n.inputs = {input};
  n.scope = scope;
  n.user = cause.user;
  n.inserted = true;
  n.role = cause.role;
  n.reason = std::move(reason);
  return n;
}

/// A new value of the same type as another.
ValueIndex value_like(PlacedGraph& plan, ValueIndex v, const std::string& name, SplitState state) {
  PlanValue copy = plan.value(v);
  copy.name = name;
  copy.state = state;
  copy.read = true;
  plan.values.push_back(std::move(copy));
  return static_cast<ValueIndex>(plan.values.size()) - 1;
}

std::string plain(std::string name) {
  std::replace(name.begin(), name.end(), ':', '.');
  return name;
}

}  // namespace

void hold_sources(PlacedGraph& plan, const std::set<std::string>& on_host) {
  std::vector<std::vector<int>> readers = readers_of(plan);
  std::set<DeviceList> alike;
  for (std::size_t i = plan.nodes.size(); i-- > 0;) {
    PlanNode& n = plan.nodes[i];
    if (n.scope != Scope::shared || !n.def || !n.def->source || on_host.contains(n.name)) continue;
    std::set<int> devices;
    for (ValueIndex v : n.outputs)
      for (int r : readers[static_cast<std::size_t>(v)])
        for (int d : all_devices(plan, plan.nodes[static_cast<std::size_t>(r)])) devices.insert(d);
    if (devices.empty()) continue;
    n.holders = *alike.insert(std::vector<int>(devices.begin(), devices.end())).first;
    n.reason = "a source is computed where it is read";
  }
}

// ---------------------------------------------------------------- donation

namespace {

bool precedes(const PlanNode& reader, const PlanNode& writer) {
  auto key = [](const PlanNode& n) { return std::tuple(n.epoch, n.scope != Scope::tower, n.order); };
  return key(reader) < key(writer);
}

/// May output `u` of the node be written over the bytes of `variable`, as far as its own reading goes?
bool writes_beside(const PlanNode& n, ValueIndex u, ValueIndex variable) {
  auto output = std::find(n.outputs.begin(), n.outputs.end(), u) - n.outputs.begin();
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    if (n.inputs[i] != variable) continue;
    if (!n.def) return false;
    bool pair = std::any_of(n.def->in_place.begin(), n.def->in_place.end(), [&](auto p) { return p.first == output && p.second == static_cast<int>(i); });
    if (!pair) return false;
  }
  return true;
}

}  // namespace

void donate(PlacedGraph& plan) {
  std::vector<std::vector<int>> readers = readers_of(plan);
  std::vector<PlanNode> seconds, stores;
  std::map<int, std::vector<std::size_t>> second_of;  // state node → its second buffers
  for (auto [variable, u] : plan.updates) {
    const PlanNode& w = plan.maker(variable);
    int made_by = plan.value(u).maker;
    PlanNode& m = plan.nodes[static_cast<std::size_t>(made_by)];
    bool taken = std::any_of(m.donates.begin(), m.donates.end(), [u = u](auto p) { return p.first == u; });
    bool mine = m.scope == Scope::shared && m.op != kCopy && m.op != kInput && !(m.def && m.def->source) && m.holders == w.holders && m.ranged == w.ranged && !taken;
    bool early = std::all_of(readers[static_cast<std::size_t>(variable)].begin(), readers[static_cast<std::size_t>(variable)].end(),
                             [&](int r) { return r == made_by || precedes(plan.nodes[static_cast<std::size_t>(r)], m); });
    if (mine && early && writes_beside(m, u, variable)) {
      m.donates.emplace_back(u, variable);
      continue;
    }
    ValueIndex from = u;
    if (m.scope == Scope::state) {
      std::string name = w.name + ".second";
      PlanNode second = inserted_node(m, name, kStore, u, Scope::shared, "a variable's old value is another's new one");
      from = value_like(plan, u, name, kReplicated);
      second.outputs = {from};
      second.holders = m.holders;
      second.ranged = m.ranged;
      second.role = Role::update;
      second_of[made_by].push_back(seconds.size());
      seconds.push_back(std::move(second));
    }
    std::string name = w.name + ".store";
    bool gathers = m.ranged && !w.ranged;
    PlanNode store = inserted_node(w, name, gathers ? kAllGather : kStore, from, Scope::shared, gathers ? "each device has computed its range" : "the old value is read later");
    store.ranged = w.ranged;
    if (gathers) store.attributes = {{"how", "ranges"}};
    ValueIndex out = value_like(plan, u, name, kReplicated);
    store.outputs = {out};
    store.holders = w.holders;
    store.role = gathers ? m.role : Role::update;
    store.donates = {{out, variable}};
    stores.push_back(std::move(store));
  }
  std::vector<PlanNode> nodes;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    nodes.push_back(std::move(plan.nodes[i]));
    if (auto at = second_of.find(static_cast<int>(i)); at != second_of.end())
      for (std::size_t s : at->second) nodes.push_back(std::move(seconds[s]));
  }
  for (PlanNode& s : stores) nodes.push_back(std::move(s));
  plan.nodes = std::move(nodes);
  reindex(plan);
}

// ---------------------------------------------------------------- ranges

namespace {

/// Reads ranges as they lie: its own on each device, or all of them, which it carries itself.
bool takes_ranges(const PlanNode& m, const PlanNode& reader) {
  return reader.op == kAllGather || reader.op == kFetch || (reader.ranged && reader.holders == m.holders);
}

}  // namespace

void insert_gathers(PlacedGraph& plan) {
  if (std::none_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.ranged; })) return;
  std::vector<std::vector<int>> readers = readers_of(plan);
  std::vector<PlanNode> before = std::move(plan.nodes);
  std::map<ValueIndex, ValueIndex> whole;
  plan.nodes.clear();
  auto wanted = [&](const PlanNode& m, ValueIndex v) {
    const std::vector<int>& r = readers[static_cast<std::size_t>(v)];
    return std::any_of(r.begin(), r.end(), [&](int reader) { return !takes_ranges(m, before[static_cast<std::size_t>(reader)]); });
  };
  for (PlanNode& n : before) {
    for (ValueIndex& v : n.inputs)
      if (auto at = whole.find(v); at != whole.end() && !takes_ranges(before[static_cast<std::size_t>(plan.value(v).maker)], n)) v = at->second;
    if (n.op == kFetch && before[static_cast<std::size_t>(plan.value(n.inputs[0]).maker)].ranged) n.attributes = {{"how", "ranges"}};
    plan.nodes.push_back(n);
    if (!n.ranged) continue;
    for (ValueIndex v : n.outputs) {
      if (!wanted(n, v)) continue;
      PlanNode gather = inserted_node(n, plain(plan.value(v).name) + ".whole", kAllGather, v, Scope::shared, "its devices have a range each");
      gather.attributes = {{"how", "ranges"}};
      gather.holders = n.holders;
      gather.outputs = {value_like(plan, v, gather.name, plan.value(v).state)};
      whole[v] = gather.outputs[0];
      plan.nodes.push_back(std::move(gather));
    }
  }
  reindex(plan);
}

// ---------------------------------------------------------------- moves

void insert_pre_aggregates(PlacedGraph& plan) {
  std::vector<PlanNode> before = plan.nodes;  // makers are looked up in it
  plan.nodes.clear();
  std::map<int, DeviceList> holders_of;  // owners → the devices that have towers
  for (PlanNode n : before) {
    if (is_join(n) && !plan.value(n.inputs[0]).state.is_replicated()) {
      const PlanNode& maker = before[static_cast<std::size_t>(plan.value(n.inputs[0]).maker)];
      n.owners = maker.vector;
      std::map<int, int> towers_on;
      for (int d : plan.vectors[static_cast<std::size_t>(n.owners)])
        if (d >= 0) ++towers_on[d];
      bool several = std::any_of(towers_on.begin(), towers_on.end(), [](auto c) { return c.second > 1; });
      bool at_home = towers_on.size() == 1 && n.holders == DeviceList{towers_on.begin()->first};
      const std::string how = n.attributes.text("how");
      if ((how == "sum" || how == "max" || how == "mean") && several && !at_home) {
        Reduction reduction = how == "max" ? Reduction::max : Reduction::sum;
        PlanNode pre = inserted_node(n, n.name + ".pre", kPreAggregate, n.inputs[0], Scope::device, "each device joins its own towers first");
        pre.attributes = {{"how", how == "max" ? "max" : "sum"}};
        pre.owners = n.owners;
        pre.role = maker.role;
        pre.outputs = {value_like(plan, n.inputs[0], pre.name, partial(reduction))};
        auto [known, fresh] = holders_of.try_emplace(n.owners);
        if (fresh) {
          std::vector<int> devices;
          for (auto [d, count] : towers_on) devices.push_back(d);
          known->second = std::move(devices);
        }
        pre.holders = known->second;
        n.inputs = pre.outputs;
        plan.nodes.push_back(std::move(pre));
      }
    }
    plan.nodes.push_back(std::move(n));
  }
  reindex(plan);
}

namespace {

/// Who reads a value without moving it itself: vectors of tower nodes, holders of others.
struct Readers {
  std::set<int> vectors;
  std::set<DeviceList> holders;
};

void check_link(const PlacedGraph& plan, const PlanNode& cause, int from, int to) {
  if (!plan.cluster.linked(plan.cluster.space(from), plan.cluster.space(to)))
    throw UserError(fmt::format("'{}' is needed on {} but lies on {}, and no link joins the spaces {} and {}", cause.name, to_string(plan.cluster.devices[static_cast<std::size_t>(to)].id),
                                to_string(plan.cluster.devices[static_cast<std::size_t>(from)].id), plan.cluster.space(to), plan.cluster.space(from)));
}

/// Joins and splits read other spaces without a copy: they need links too.
void check_links(const PlacedGraph& plan) {
  if (plan.cluster.unlinked.empty()) return;
  Instances instances(plan);
  for (const PlanNode& n : plan.nodes)
    for (const Move& m : moves_of(instances, n)) check_link(plan, plan.maker(n.inputs[0]), m.from, m.to);
}

class CopyInserter {
 public:
  explicit CopyInserter(PlacedGraph& plan) : plan_(plan), wanted_(plan.values.size()) {
    for (const PlanNode& n : plan.nodes) {
      if (moves_values(n)) continue;
      for (ValueIndex v : values_read(n)) {
        if (n.scope == Scope::tower) wanted_[static_cast<std::size_t>(v)].vectors.insert(n.vector);
        else wanted_[static_cast<std::size_t>(v)].holders.insert(n.holders);
      }
    }
  }

  void run() {
    std::vector<PlanNode> before = std::move(plan_.nodes);
    for (PlanNode& m : before) {
      std::vector<ValueIndex> outputs = m.outputs;
      PlanNode cause = m;
      out_.push_back(std::move(m));
      for (ValueIndex v : outputs) {
        if (cause.scope == Scope::tower) copy_in_towers(cause, v);
        else if (cause.scope != Scope::device) copy_shared(cause, v);
      }
    }
    plan_.nodes = std::move(out_);
    reindex(plan_);
  }

 private:
  const std::string& space(int d) const { return plan_.cluster.space(d); }

  PlanNode& add(const PlanNode& cause, ValueIndex v) {
    int k = copies_[v]++;
    std::string name = plain(plan_.value(v).name) + ".copy" + (k ? std::to_string(k) : "");
    PlanNode c = inserted_node(cause, name, kCopy, v, cause.scope == Scope::tower ? Scope::tower : Scope::shared, "read in another memory space");
    c.outputs = {value_like(plan_, v, name, plan_.value(v).state)};
    out_.push_back(std::move(c));
    return out_.back();
  }

  void copy_shared(const PlanNode& m, ValueIndex v) {
    // Most values have the same holders and readers as one before them: what they need is found once.
    const Readers& r = wanted_[static_cast<std::size_t>(v)];
    auto [known, fresh] = destinations_.try_emplace({m.holders, r.vectors, r.holders});
    if (fresh) known->second = destinations_of(m, r);
    if (!known->second.empty()) add(m, v).holders = known->second;
  }

  DeviceList destinations_of(const PlanNode& m, const Readers& r) const {
    std::set<int> devices;
    for (int x : r.vectors)
      for (int d : plan_.vectors[static_cast<std::size_t>(x)])
        if (d >= 0) devices.insert(d);
    for (const auto& h : r.holders) devices.insert(h.begin(), h.end());
    std::set<std::string> have;
    for (int h : m.holders) have.insert(space(h));
    std::vector<int> destinations;
    for (int d : devices)
      if (have.insert(space(d)).second) {
        check_link(plan_, m, m.holders.front(), d);
        destinations.push_back(d);
      }
    return destinations;
  }

  void copy_in_towers(const PlanNode& m, ValueIndex v) {
    const std::vector<int> at = plan_.vectors[static_cast<std::size_t>(m.vector)];
    std::vector<std::map<std::string, int>> left(at.size());  // per tower: space → the first device there that reads
    bool any = false;
    for (int x : wanted_[static_cast<std::size_t>(v)].vectors) {
      const std::vector<int>& to = plan_.vectors[static_cast<std::size_t>(x)];
      for (std::size_t t = 0; t < at.size(); ++t)
        if (at[t] >= 0 && space(at[t]) != space(to[t])) {
          check_link(plan_, m, at[t], to[t]);
          any |= left[t].try_emplace(space(to[t]), to[t]).second;
        }
    }
    while (any) {
      std::vector<int> vector(at.size(), -1);
      any = false;
      for (std::size_t t = 0; t < at.size(); ++t) {
        if (left[t].empty()) continue;
        vector[t] = left[t].begin()->second;
        left[t].erase(left[t].begin());
        any |= !left[t].empty();
      }
      auto known = std::find(plan_.vectors.begin(), plan_.vectors.end(), vector);
      int index = static_cast<int>(known - plan_.vectors.begin());
      if (known == plan_.vectors.end()) plan_.vectors.push_back(vector);
      add(m, v).vector = index;
    }
  }

  PlacedGraph& plan_;
  std::vector<Readers> wanted_;
  std::vector<PlanNode> out_;
  std::map<ValueIndex, int> copies_;
  std::map<std::tuple<DeviceList, std::set<int>, std::set<DeviceList>>, DeviceList> destinations_;
};

}  // namespace

void insert_copies(PlacedGraph& plan) {
  CopyInserter(plan).run();
  check_links(plan);
}

}  // namespace belfry
