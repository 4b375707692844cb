#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/graph/plan/moves.h>
#include <belfry/graph/structural.h>
#include <belfry/placer/lower.h>
#include <belfry/placer/lower_internal.h>

namespace belfry {

namespace {

/// As new, with the memory that the texts and lists of a spare node had.
void take_memory(PlanNode& out, PlanNode& n) {
  auto keep = [](auto& to, auto& from) {
    from.clear();
    to = std::move(from);
  };
  keep(out.name, n.name), keep(out.op, n.op), keep(out.inputs, n.inputs), keep(out.outputs, n.outputs), keep(out.reason, n.reason);
  keep(out.phases, n.phases), keep(out.waits, n.waits), keep(out.donates, n.donates), keep(out.by_class, n.by_class), keep(out.by_group, n.by_group);
}

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

/// Who reads a value without moving it itself: vectors of tower nodes, holders of others; each once, in order. `splits`: vectors of what takes
/// rows of it and may find it where it cannot be read.
struct Elsewhere {
  std::vector<int> vectors, splits;
  std::vector<DeviceList> holders;
  auto operator<=>(const Elsewhere&) const = default;
};

class CopyInserter {
 public:
  CopyInserter(PlacedGraph& plan, Apart& apart, Spare& spare) : plan_(plan), apart_(apart), spare_(spare), space_(space_numbers(plan.cluster)), read_(plan.values.size()) {
    for (const PlanNode& n : plan.nodes) {
      const bool splits = is_op(n, kSplit) && !plan.cluster.peers.empty();
      if (moves_values(n) && !splits) continue;
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
        if (n.scope == Scope::tower) insert(splits ? e.splits : e.vectors, n.vector);
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
      describe(to, cause, plan_.value(c.copy).name, kCopy, c.value, cause.scope == Scope::tower ? Scope::tower : Scope::shared, c.reason);
      to.outputs.assign(1, c.copy);
      to.vector = c.vector;
      if (c.holders) to.holders = *c.holders;
    });
    if (staged_.empty()) return;
    for (PlanNode& n : plan_.nodes)
      if (auto at = is_op(n, kSplit) ? staged_.find(n.inputs[0]) : staged_.end(); at != staged_.end()) {
        const std::vector<int> &holders = plan_.maker(n.inputs[0]).holders, &towers = plan_.devices(n);
        if (std::any_of(towers.begin(), towers.end(), [&](int d) { return d >= 0 && stage(holders, d) >= 0; })) n.inputs[0] = at->second;
      }
  }

 private:
  /// A copy that is to come behind the node that makes its value.
  struct Copied {
    int behind;
    ValueIndex value, copy;
    int vector;
    const DeviceList* holders;
    const char* reason;
  };
  /// Where copies of a value go: to hosts, from which others go on, and at once.
  struct Destinations {
    DeviceList hosts, direct, staged;
  };
  struct Vectors {
    int hosts = -1;
    std::vector<int> direct, staged;
  };

  template <class T>
  static void insert(std::vector<T>& list, const T& item) {
    if (auto at = std::lower_bound(list.begin(), list.end(), item); at == list.end() || item < *at) list.insert(at, item);
  }
  int space(int d) const { return space_[static_cast<std::size_t>(d)]; }

  /// Of a value, or of its copy on the host, which goes on; gives the copy's value.
  ValueIndex add(ValueIndex v, ValueIndex from, int vector, const DeviceList* holders, const char* reason) {
    const int k = copies_++;
    const auto copy = static_cast<ValueIndex>(plan_.values.size());
    PlanValue& value = plan_.values.emplace_back();
    if (!spare_.values.empty()) value = std::move(spare_.values.back()), spare_.values.pop_back();
    const PlanValue& of = plan_.value(v);
    value.name = of.name, value.type = of.type, value.state = of.state, value.read = true;
    make_plain(value.name);
    value.name += ".copy";
    if (k) value.name += std::to_string(k);
    out_.push_back({node_, from, copy, vector, holders, reason});
    return copy;
  }

  void copy_shared(const PlanNode& m, ValueIndex v, const Elsewhere& e) {
    // Most values have the same holders and readers as one before them: what they need is found once.
    auto known = destinations_.find(std::tie(m.holders, e));
    if (known == destinations_.end()) known = destinations_.emplace(std::tuple(m.holders, e), destinations_of(m, e)).first;
    const Destinations& to = known->second;
    const ValueIndex host = to.hosts.empty() ? -1 : staged_[v] = add(v, v, -1, &to.hosts, kForOthers);
    if (!to.direct.empty()) add(v, v, -1, &to.direct, kRead);
    if (!to.staged.empty()) add(v, host, -1, &to.staged, kFromHost);
  }

  Destinations destinations_of(const PlanNode& m, const Elsewhere& e) {
    std::set<int> devices, split_on;
    for (auto [vectors, list] : {std::pair(&e.vectors, &devices), {&e.splits, &split_on}})
      for (int x : *vectors)
        for (int d : plan_.vectors[static_cast<std::size_t>(x)])
          if (d >= 0) list->insert(d);
    for (const auto& h : e.holders) devices.insert(h.begin(), h.end());
    std::set<int> have;
    std::map<int, int> hosts;  // by space
    for (int h : m.holders) have.insert(space(h));
    auto staged = [&](int d) {
      const int host = stage(m.holders, d);
      if (host >= 0) hosts.try_emplace(space(host), host);
      return host >= 0;
    };
    std::vector<int> direct, on;
    for (int d : devices)
      if (have.insert(space(d)).second) (staged(d) ? on : direct).push_back(d);
    for (int d : split_on) staged(d);
    std::erase_if(direct, [&](int d) {  // what is read on the host goes on from where it is read
      const auto at = hosts.find(space(d));
      if (at != hosts.end()) at->second = d;
      return at != hosts.end();
    });
    std::vector<int> stages;
    for (auto [number, host] : hosts) stages.push_back(host);
    std::sort(stages.begin(), stages.end());
    for (const auto* list : {&direct, &stages})
      for (int d : *list) check_link(plan_, apart_, m, m.holders.front(), d);
    for (int d : on) check_link(plan_, apart_, m, stage(m.holders, d), d);
    return {std::move(stages), std::move(direct), std::move(on)};
  }

  /// By which CPU a device has what these hold; -1: it reads one of them.
  int stage(const std::vector<int>& holders, int device) const {
    int out = -1;
    for (int h : holders)
      if ((out = plan_.cluster.stage(h, device)) < 0) return -1;
    return out;
  }

  /// A copy has one destination per tower: first the spaces whose names come first.
  void copy_in_towers(const PlanNode& m, ValueIndex v, const Elsewhere& e) {
    auto [known, fresh] = tower_copies_.try_emplace({m.vector, e.vectors});
    if (fresh) known->second = vectors_of(m, e);
    const Vectors& to = known->second;
    const ValueIndex host = to.hosts < 0 ? -1 : add(v, v, to.hosts, nullptr, kForOthers);
    for (int x : to.direct) add(v, v, x, nullptr, kRead);
    for (int x : to.staged) add(v, host, x, nullptr, kFromHost);
  }

  using BySpace = std::map<std::string_view, int>;  // the first device there that reads

  Vectors vectors_of(const PlanNode& m, const Elsewhere& e) {
    const std::vector<int> at = plan_.vectors[static_cast<std::size_t>(m.vector)];
    std::vector<BySpace> direct(at.size()), staged(at.size());  // per tower
    std::vector<int> hosts(at.size(), -1);
    for (int x : e.vectors) {
      const std::vector<int>& to = plan_.vectors[static_cast<std::size_t>(x)];
      for (std::size_t t = 0; t < at.size(); ++t)
        if (at[t] >= 0 && space(at[t]) != space(to[t])) {
          const int host = plan_.cluster.stage(at[t], to[t]);
          if (host >= 0) hosts[t] = host;
          check_link(plan_, apart_, m, at[t], host >= 0 ? host : to[t]);
          if (host >= 0) check_link(plan_, apart_, m, host, to[t]);
          (host >= 0 ? staged : direct)[t].try_emplace(plan_.cluster.space(to[t]), to[t]);
        }
    }
    for (std::size_t t = 0; t < at.size(); ++t)
      if (auto read = hosts[t] < 0 ? direct[t].end() : direct[t].find(plan_.cluster.space(hosts[t])); read != direct[t].end()) {
        hosts[t] = read->second;
        direct[t].erase(read);
      }
    Vectors out;
    if (std::any_of(hosts.begin(), hosts.end(), [](int d) { return d >= 0; })) out.hosts = vector_number(plan_, std::move(hosts));
    out.direct = vectors(direct), out.staged = vectors(staged);
    return out;
  }

  /// As many as the tower with most destinations needs.
  std::vector<int> vectors(std::vector<BySpace>& left) {
    std::vector<int> out;
    while (std::any_of(left.begin(), left.end(), [](const BySpace& l) { return !l.empty(); })) {
      std::vector<int> vector(left.size(), -1);
      for (std::size_t t = 0; t < left.size(); ++t) {
        if (left[t].empty()) continue;
        vector[t] = left[t].begin()->second;
        left[t].erase(left[t].begin());
      }
      out.push_back(vector_number(plan_, std::move(vector)));
    }
    return out;
  }

  static constexpr const char *kRead = "read in another memory space", *kForOthers = "read by GPUs that do not read this one's memory: by way of the host", *kFromHost = "read in another memory space, from the host's copy";

  PlacedGraph& plan_;
  Apart& apart_;
  Spare& spare_;
  std::vector<int> space_;  // per device
  std::vector<int> read_;   // per value, one more than its place in `elsewhere_`
  std::vector<Elsewhere> elsewhere_;
  std::vector<Copied> out_;
  int node_ = 0, copies_ = 0;  // at hand; copies of the value at hand
  std::map<std::tuple<DeviceList, Elsewhere>, Destinations, std::less<>> destinations_;
  std::map<std::pair<int, std::vector<int>>, Vectors> tower_copies_;
  std::map<ValueIndex, ValueIndex> staged_;  // shared values that the host has for GPUs that cannot read them: its copy
};

}  // namespace

void insert_copies(PlacedGraph& plan, Apart& apart, Spare& spare) {
  CopyInserter(plan, apart, spare).run();
  check_links(plan, apart);
}

}  // namespace belfry
