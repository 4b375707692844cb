#include <belfry/placer/lower.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/assign.h>
#include <belfry/placer/lower_internal.h>

namespace belfry {

namespace {

void describe(PlanNode& n, const PlanNode& cause, const std::string& name, const char* op, ValueIndex input, Scope scope, std::string_view reason) {
  n.name = name;
  n.op = op;
  n.inputs.assign(1, input);
  n.scope = scope;
  n.user = cause.user;
  n.inserted = true;
  n.role = cause.role;
  n.reason = reason;
}

/// As new, with the memory that the texts and lists of a spare node had.
void take_memory(PlanNode& out, PlanNode& n) {
  auto keep = [](auto& to, auto& from) {
    from.clear();
    to = std::move(from);
  };
  keep(out.name, n.name), keep(out.op, n.op), keep(out.inputs, n.inputs), keep(out.outputs, n.outputs), keep(out.reason, n.reason);
  keep(out.phases, n.phases), keep(out.waits, n.waits), keep(out.donates, n.donates), keep(out.by_class, n.by_class), keep(out.by_group, n.by_group);
}

}  // namespace

PlanNode inserted_node(const PlanNode& cause, const std::string& name, const char* op, ValueIndex input, Scope scope, std::string_view reason) {
  PlanNode n;
  describe(n, cause, name, op, input, scope, reason);
  return n;
}

ValueIndex value_like(PlacedGraph& plan, ValueIndex v, const std::string& name, SplitState state) {
  PlanValue copy{name, plan.value(v).type, state, plan.value(v).maker, plan.value(v).output, true};
  plan.values.push_back(std::move(copy));
  return static_cast<ValueIndex>(plan.values.size()) - 1;
}

namespace {

/// The name of a value as a node's: "x:1" as "x..1", which no node of a user's has.
void make_plain(std::string& name) {
  if (const auto colon = name.rfind(':'); colon != name.npos) name.replace(colon, 1, "..");
}

/// Makes room behind the nodes `behind(k)`, in their order, and calls `fill(node, k)` for each while what it comes behind has its place.
template <class Behind, class Fill>
void insert_nodes(PlacedGraph& plan, std::size_t count, Behind behind, Fill fill) {
  if (!count) return;
  std::size_t i = plan.nodes.size(), to = i + count;
  plan.nodes.reserve(to);
  plan.nodes.resize(to);
  for (std::size_t k = count; k-- > 0;) {  // from behind, so that none is moved twice
    while (static_cast<int>(i) > behind(k) + 1) plan.nodes[--to] = std::move(plan.nodes[--i]);
    fill(plan.nodes[--to], k);
  }
  reindex(plan);
}

}  // namespace

void insert_behind(PlacedGraph& plan, std::vector<std::pair<int, PlanNode>> nodes) {
  insert_nodes(plan, nodes.size(), [&](std::size_t k) { return nodes[k].first; }, [&](PlanNode& to, std::size_t k) { to = std::move(nodes[k].second); });
}

void hold_sources(PlacedGraph& plan, const NumberLists& readers, const FixedNodes& fixed) {
  std::set<DeviceList> alike;
  for (std::size_t i = plan.nodes.size(); i-- > 0;) {
    PlanNode& n = plan.nodes[i];
    if (n.scope != Scope::shared || !n.def || !n.def->source || fixed.contains(n.name)) continue;
    std::vector<int> devices;
    for (ValueIndex v : n.outputs)
      for (int r : readers[static_cast<std::size_t>(v)]) {
        const PlanNode& reader = plan.nodes[static_cast<std::size_t>(r)];
        const std::vector<int>& at = reader.scope == Scope::tower ? plan.devices(reader) : reader.holders.get();
        devices.insert(devices.end(), at.begin(), at.end());
      }
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    if (!devices.empty() && devices.front() < 0) devices.erase(devices.begin());
    if (devices.empty()) continue;
    n.holders = *alike.insert(std::move(devices)).first;
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
bool writes_beside(const TowerGraph& graph, const PlanNode& n, ValueIndex u, ValueIndex variable) {
  const std::vector<std::pair<int, int>> pairs = in_place_pairs(graph, n);
  auto output = std::find(n.outputs.begin(), n.outputs.end(), u) - n.outputs.begin();
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    if (n.inputs[i] != variable) continue;
    if (std::find(pairs.begin(), pairs.end(), std::pair(static_cast<int>(output), static_cast<int>(i))) == pairs.end()) return false;
  }
  return true;
}

}  // namespace

void donate(PlacedGraph& plan, const NumberLists& readers) {
  std::vector<PlanNode> stores;
  std::vector<std::pair<int, PlanNode>> seconds;  // behind the state nodes whose second buffers they are
  for (auto [variable, u] : plan.updates) {
    const PlanNode& w = plan.maker(variable);
    int made_by = plan.value(u).maker;
    PlanNode& m = plan.nodes[static_cast<std::size_t>(made_by)];
    bool taken = std::any_of(m.donates.begin(), m.donates.end(), [u = u](auto p) { return p.first == u; });
    bool mine = m.scope == Scope::shared && !is_op(m, kCopy) && !is_op(m, kInput) && !(m.def && m.def->source) && m.holders == w.holders && m.ranged == w.ranged && !taken;
    bool early = std::all_of(readers[static_cast<std::size_t>(variable)].begin(), readers[static_cast<std::size_t>(variable)].end(),
                             [&](int r) { return r == made_by || precedes(plan.nodes[static_cast<std::size_t>(r)], m); });
    if (mine && early && writes_beside(plan, m, u, variable)) {
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
      seconds.emplace_back(made_by, std::move(second));
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
  std::stable_sort(seconds.begin(), seconds.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (PlanNode& s : stores) seconds.emplace_back(static_cast<int>(plan.nodes.size()) - 1, std::move(s));
  insert_behind(plan, std::move(seconds));
}

// ---------------------------------------------------------------- ranges

namespace {

/// Reads ranges as they lie: its own on each device, or all of them, which it carries itself.
bool takes_ranges(const PlanNode& m, const PlanNode& reader) {
  return is_op(reader, kAllGather) || is_op(reader, kFetch) || (reader.ranged && reader.holders == m.holders);
}

}  // namespace

void insert_gathers(PlacedGraph& plan) {
  if (std::none_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.ranged; })) return;
  std::vector<std::vector<int>> readers(readers_of(plan));
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
    if (is_op(n, kFetch) && before[static_cast<std::size_t>(plan.value(n.inputs[0]).maker)].ranged) n.attributes = {{"how", "ranges"}};
    plan.nodes.push_back(n);
    if (!n.ranged) continue;
    for (ValueIndex v : n.outputs) {
      if (!wanted(n, v)) continue;
      std::string name = plan.value(v).name;
      make_plain(name);
      PlanNode gather = inserted_node(n, name + ".whole", kAllGather, v, Scope::shared, "its devices have a range each");
      gather.attributes = {{"how", "ranges"}};
      gather.holders = n.holders;
      gather.bucket = n.bucket;
      gather.outputs = {value_like(plan, v, gather.name, plan.value(v).state)};
      whole[v] = gather.outputs[0];
      plan.nodes.push_back(std::move(gather));
    }
  }
  reindex(plan);
}

// ---------------------------------------------------------------- moves

namespace {

void check_link(const PlacedGraph& plan, Apart& apart, const PlanNode& cause, int from, int to) {
  if (apart(from, to))
    throw UserError(fmt::format("'{}' is needed on {} but lies on {}, and no link joins the spaces {} and {}; move it, or what reads it, so that both are in one space (--move), or give devices that are linked (--devices), or a cluster file whose links join them",
                                cause.name, to_string(plan.cluster.devices[static_cast<std::size_t>(to)].id), to_string(plan.cluster.devices[static_cast<std::size_t>(from)].id), plan.cluster.space(to),
                                plan.cluster.space(from)));
}

/// Joins and splits read other spaces without a copy: they need links too.
void check_links(const PlacedGraph& plan, Apart& apart) {
  if (!apart.any()) return;
  Instances instances(plan);
  for (const PlanNode& n : plan.nodes)
    for (const Move& m : moves_of(instances, n)) check_link(plan, apart, plan.maker(n.inputs[0]), m.from, m.to);
}

/// Who reads a value without moving it itself: vectors of tower nodes, holders of others; each once, in order.
struct Elsewhere {
  std::vector<int> vectors;
  std::vector<DeviceList> holders;
  auto operator<=>(const Elsewhere&) const = default;
};

class CopyInserter {
 public:
  CopyInserter(PlacedGraph& plan, Apart& apart, Spare& spare) : plan_(plan), apart_(apart), spare_(spare), space_(space_numbers(plan.cluster)), read_(plan.values.size()) {
    for (const PlanNode& n : plan.nodes) {
      if (moves_values(n)) continue;
      for_values_read(n, [&](ValueIndex v) {
        // Most values are read where they are made.
        const PlanNode& m = plan.maker(v);
        if (m.scope == Scope::tower ? n.scope != Scope::tower || n.vector == m.vector : n.scope != Scope::tower && n.holders == m.holders) return;
        int& at = read_[static_cast<std::size_t>(v)];
        if (!at) {
          elsewhere_.emplace_back();
          at = static_cast<int>(elsewhere_.size());
        }
        Elsewhere& e = elsewhere_[static_cast<std::size_t>(at) - 1];
        if (n.scope == Scope::tower) insert(e.vectors, n.vector);
        else insert(e.holders, n.holders);
      });
    }
  }

  void run() {
    out_.reserve(elsewhere_.size());
    plan_.values.reserve(plan_.values.size() + elsewhere_.size());
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& m = plan_.nodes[i];
      node_ = static_cast<int>(i);
      for (ValueIndex v : m.outputs) {
        if (!read_[static_cast<std::size_t>(v)]) continue;
        copies_ = 0;
        const Elsewhere& e = elsewhere_[static_cast<std::size_t>(read_[static_cast<std::size_t>(v)]) - 1];
        if (m.scope == Scope::tower) copy_in_towers(m, v, e);
        else if (m.scope != Scope::device) copy_shared(m, v, e);
      }
    }
    insert_nodes(plan_, out_.size(), [&](std::size_t k) { return out_[k].behind; }, [&](PlanNode& to, std::size_t k) {
      const Copied& c = out_[k];
      const PlanNode& cause = plan_.nodes[static_cast<std::size_t>(c.behind)];
      to = PlanNode();
      if (!spare_.nodes.empty()) take_memory(to, spare_.nodes.back()), spare_.nodes.pop_back();
      describe(to, cause, plan_.value(c.copy).name, kCopy, c.value, cause.scope == Scope::tower ? Scope::tower : Scope::shared, "read in another memory space");
      to.outputs.assign(1, c.copy);
      to.vector = c.vector;
      if (c.holders) to.holders = *c.holders;
    });
  }

 private:
  /// A copy that is to come behind the node that makes its value.
  struct Copied {
    int behind;
    ValueIndex value, copy;
    int vector;
    const DeviceList* holders;
  };

  template <class T>
  static void insert(std::vector<T>& list, const T& item) {
    if (auto at = std::lower_bound(list.begin(), list.end(), item); at == list.end() || item < *at) list.insert(at, item);
  }
  int space(int d) const { return space_[static_cast<std::size_t>(d)]; }

  void add(ValueIndex v, int vector, const DeviceList* holders) {
    const int k = copies_++;
    const auto copy = static_cast<ValueIndex>(plan_.values.size());
    PlanValue& value = plan_.values.emplace_back();
    if (!spare_.values.empty()) value = std::move(spare_.values.back()), spare_.values.pop_back();
    const PlanValue& of = plan_.value(v);
    value.name = of.name, value.type = of.type, value.state = of.state, value.read = true;
    make_plain(value.name);
    value.name += ".copy";
    if (k) value.name += std::to_string(k);
    out_.push_back({node_, v, copy, vector, holders});
  }

  void copy_shared(const PlanNode& m, ValueIndex v, const Elsewhere& e) {
    // Most values have the same holders and readers as one before them: what they need is found once.
    auto known = destinations_.find(std::tie(m.holders, e));
    if (known == destinations_.end()) known = destinations_.emplace(std::tuple(m.holders, e), destinations_of(m, e)).first;
    if (!known->second.empty()) add(v, -1, &known->second);
  }

  DeviceList destinations_of(const PlanNode& m, const Elsewhere& e) {
    std::set<int> devices;
    for (int x : e.vectors)
      for (int d : plan_.vectors[static_cast<std::size_t>(x)])
        if (d >= 0) devices.insert(d);
    for (const auto& h : e.holders) devices.insert(h.begin(), h.end());
    std::set<int> have;
    for (int h : m.holders) have.insert(space(h));
    std::vector<int> destinations;
    for (int d : devices)
      if (have.insert(space(d)).second) {
        check_link(plan_, apart_, m, m.holders.front(), d);
        destinations.push_back(d);
      }
    return destinations;
  }

  /// A copy has one destination per tower: first the spaces whose names come first.
  void copy_in_towers(const PlanNode& m, ValueIndex v, const Elsewhere& e) {
    auto [known, fresh] = tower_copies_.try_emplace({m.vector, e.vectors});
    if (fresh) known->second = vectors_of(m, e);
    for (int x : known->second) add(v, x, nullptr);
  }

  std::vector<int> vectors_of(const PlanNode& m, const Elsewhere& e) {
    const std::vector<int> at = plan_.vectors[static_cast<std::size_t>(m.vector)];
    std::vector<std::map<std::string_view, int>> left(at.size());  // per tower: space → the first device there that reads
    bool any = false;
    for (int x : e.vectors) {
      const std::vector<int>& to = plan_.vectors[static_cast<std::size_t>(x)];
      for (std::size_t t = 0; t < at.size(); ++t)
        if (at[t] >= 0 && space(at[t]) != space(to[t])) {
          check_link(plan_, apart_, m, at[t], to[t]);
          any |= left[t].try_emplace(plan_.cluster.space(to[t]), to[t]).second;
        }
    }
    std::vector<int> out;
    while (any) {
      std::vector<int> vector(at.size(), -1);
      any = false;
      for (std::size_t t = 0; t < at.size(); ++t) {
        if (left[t].empty()) continue;
        vector[t] = left[t].begin()->second;
        left[t].erase(left[t].begin());
        any |= !left[t].empty();
      }
      out.push_back(vector_number(plan_, std::move(vector)));
    }
    return out;
  }

  PlacedGraph& plan_;
  Apart& apart_;
  Spare& spare_;
  std::vector<int> space_;  // per device
  std::vector<int> read_;   // per value, one more than its place in `elsewhere_`
  std::vector<Elsewhere> elsewhere_;
  std::vector<Copied> out_;
  int node_ = 0, copies_ = 0;  // at hand; copies of the value at hand
  std::map<std::tuple<DeviceList, Elsewhere>, DeviceList, std::less<>> destinations_;
  std::map<std::pair<int, std::vector<int>>, std::vector<int>> tower_copies_;
};

}  // namespace

void insert_copies(PlacedGraph& plan, Apart& apart, Spare& spare) {
  CopyInserter(plan, apart, spare).run();
  check_links(plan, apart);
}

}  // namespace belfry
