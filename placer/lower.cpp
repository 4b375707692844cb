#include <belfry/placer/lower.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/lower_internal.h>

namespace belfry {

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

void make_plain(std::string& name) {
  if (const auto colon = name.rfind(':'); colon != name.npos) name.replace(colon, 1, "..");
}

void insert_behind(PlacedGraph& plan, std::vector<std::pair<int, PlanNode>> nodes) {
  insert_nodes(plan, nodes.size(), [&](std::size_t k) { return nodes[k].first; }, [&](PlanNode& to, std::size_t k) { to = std::move(nodes[k].second); });
}

DeviceList cpus_beside(const Cluster& cluster, const std::vector<int>& devices) {
  std::set<int> out;
  for (int d : devices) out.insert(cluster.cpu_of(cluster.devices[static_cast<std::size_t>(d)].id.host));
  out.erase(-1);
  return std::vector<int>(out.begin(), out.end());
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

/// Per node: of one in ranges, whether the host gathers it; of what gathers into a variable, whether it reads what the host has gathered.
std::vector<bool> gathered_by_host(const PlacedGraph& plan) {
  std::vector<bool> out(plan.nodes.size());
  if (plan.cluster.peers.empty()) return out;
  std::map<std::pair<DeviceList, DeviceList>, bool> known;
  auto by_host = [&](const PlanNode& m, const PlanNode& gather) {
    auto [at, fresh] = known.try_emplace({m.holders, gather.holders});
    if (fresh) at->second = go_by_host(plan.cluster, m.holders, gather.holders);
    return at->second && kernel_of_moves(plan, gather) == gather.op;
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const PlanNode& n = plan.nodes[i];
    if (n.ranged) {
      PlanNode gather = inserted_node(n, n.name, kAllGather, n.outputs[0], Scope::shared, "");
      gather.holders = n.holders;
      out[i] = out[i] || by_host(n, gather);
    } else if (is_op(n, kAllGather) && by_host(plan.maker(n.inputs[0]), n)) {
      out[i] = out[static_cast<std::size_t>(plan.value(n.inputs[0]).maker)] = true;
    }
  }
  return out;
}

}  // namespace

void insert_gathers(PlacedGraph& plan) {
  if (std::none_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.ranged; })) return;
  std::vector<std::vector<int>> readers(readers_of(plan));
  const std::vector<bool> by_host = gathered_by_host(plan);
  std::vector<PlanNode> before = std::move(plan.nodes);
  std::map<ValueIndex, ValueIndex> whole;
  plan.nodes.clear();
  auto takes = [&](const PlanNode& m, std::size_t reader) { return takes_ranges(m, before[reader]) && !(is_op(before[reader], kAllGather) && by_host[reader]); };
  auto wanted = [&](const PlanNode& m, ValueIndex v) {
    const std::vector<int>& r = readers[static_cast<std::size_t>(v)];
    return std::any_of(r.begin(), r.end(), [&](int reader) { return !takes(m, static_cast<std::size_t>(reader)); });
  };
  for (std::size_t i = 0; i < before.size(); ++i) {
    PlanNode& n = before[i];
    for (ValueIndex& v : n.inputs)
      if (auto at = whole.find(v); at != whole.end() && !takes(before[static_cast<std::size_t>(plan.value(v).maker)], i)) v = at->second;
    if (is_op(n, kFetch) && before[static_cast<std::size_t>(plan.value(n.inputs[0]).maker)].ranged) n.attributes = {{"how", "ranges"}};
    plan.nodes.push_back(n);
    if (!n.ranged) continue;
    for (ValueIndex v : n.outputs) {
      if (!wanted(n, v)) continue;
      std::string name = plan.value(v).name;
      make_plain(name);
      PlanNode gather = inserted_node(n, name + ".whole", kAllGather, v, Scope::shared, by_host[i] ? "GPUs that do not read each other's memory have a range each: the host gathers" : "its devices have a range each");
      gather.attributes = {{"how", "ranges"}};
      gather.holders = by_host[i] ? cpus_beside(plan.cluster, n.holders) : n.holders;
      gather.bucket = n.bucket;
      gather.outputs = {value_like(plan, v, gather.name, plan.value(v).state)};
      whole[v] = gather.outputs[0];
      plan.nodes.push_back(std::move(gather));
    }
  }
  reindex(plan);
}

}  // namespace belfry
