#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/plan/buffer_places.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/forecast_parts_internal.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/unbound.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

bool joins_by(const PlanNode& n, std::initializer_list<const char*> ways) {
  const AttributeValue* how = n.attributes.find("how");
  const std::string* text = how ? std::get_if<std::string>(how) : nullptr;
  return text && std::any_of(ways.begin(), ways.end(), [&](const char* w) { return *text == w; });
}

}  // namespace

Transfers::Transfers(ForecastSteps& steps, Links& links) : steps_(steps), links_(links), plan_(steps.plan), collectives_(steps.plan.nodes.size(), kUnknown) {
  moves_.reserve(plan_.nodes.size());
  for (const PlanNode& n : plan_.nodes) moves_.push_back(moves_values(n));
}

bool Transfers::collective(int step) {
  if (links_.empty() || !moves(step)) return false;
  const PlanNode& n = node(step);
  Known& known = collectives_[static_cast<std::size_t>(steps_.steps[static_cast<std::size_t>(step)].node)];
  if (known != kUnknown) return known == kTogether;
  known = kAlone;
  if (n.holders.size() < 2 || (!is_op(n, kAggregate) && !is_op(n, kAllGather))) return false;
  std::vector<int> from = steps_.sources(n, steps_.steps[static_cast<std::size_t>(step)].device), members = n.holders;
  for (std::vector<int>* list : {&from, &members}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  if (from == members && std::all_of(members.begin(), members.end(), [&](int d) { return plan_.cluster.devices[static_cast<std::size_t>(d)].id.kind == "gpu"; })) known = kTogether;
  return known == kTogether;
}

bool Transfers::follows(int step) const {
  if (step == 0 || !node(step).bucket) return false;
  const PlanNode &n = node(step), &before = node(step - 1);
  return steps_.steps[static_cast<std::size_t>(step - 1)].stream == steps_.steps[static_cast<std::size_t>(step)].stream && before.bucket == n.bucket && before.op == n.op;
}

Transfers::Collective Transfers::collective_cost(int step, std::vector<double>& load) {
  const PlanNode& n = node(step);
  const std::vector<int>& members = n.holders;
  std::map<int, int> count;
  std::vector<int> pieces;
  for (int d : steps_.sources(n, members.front())) ++count[d];
  for (int d : members) pieces.push_back(count[d]);
  const double bytes = static_cast<double>(local_type(plan_.value(n.outputs[0]), plan_.share(-1)).bytes()), share = bytes / static_cast<double>(members.size());
  const DeviceRate rate = rate_of(plan_.cluster.devices[static_cast<std::size_t>(members.front())], plan_.threads);
  if (joins_by(n, {"same"})) return {rate.launch, 0, 0};
  if (!joins_by(n, {"sum", "max", "mean"})) {
    const double seconds = rate.launch + links_.exchange(members, {}, share, load, follows(step)) + bytes / rate.bandwidth;
    return {seconds, steps_.steps[static_cast<std::size_t>(step)].variant->kernel == kNccl ? seconds : 0, 2 * (bytes - share)};
  }
  double all = 0;
  for (int p : pieces) all += p;
  const double summed = n.ranged ? share : bytes;  // in ranges it is a reduce-scatter, else every device lands every part
  const double seconds = rate.launch + links_.exchange(members, pieces, summed, load, follows(step)) + summed * (all + 1) / rate.bandwidth;
  return {seconds, seconds, summed * (2 * (all - pieces.front()) + all + 1)};
}

double Transfers::reading(int step, const std::vector<Flow>& flows) const {
  if (arrives_in_place(step)) return 0;
  std::map<int, double> load;
  double out = 0;
  for (const Flow& f : flows)
    if (plan_.cluster.devices[static_cast<std::size_t>(f.from)].id.kind == "gpu")
      for (int w : f.route) out = std::max(out, (load[w] += f.bytes) / links_.ways()[static_cast<std::size_t>(w)].bandwidth);
  return out;
}

std::vector<std::pair<int, double>> Transfers::sources(int step) {
  const ForecastStep& s = steps_.steps[static_cast<std::size_t>(step)];
  std::vector<std::pair<int, double>> out;
  if (!moves(step)) return out;
  const PlanNode& n = node(step);
  if (reads_landed(plan_, n, s.device)) return out;  // it is there
  const PlanNode& m = plan_.maker(n.inputs[0]);
  const PlanValue& read = plan_.value(n.inputs[0]);
  auto take = [&](int from, const LocalType& type) {
    if (from < 0) unbound(fmt::format("'{}' brings '{}', which is on no device", n.name, read.name));
    if (!steps_.instances().same_space(from, s.device)) out.emplace_back(from, static_cast<double>(type.bytes()));
  };
  if (n.scope == Scope::tower) {
    take(m.scope == Scope::tower ? plan_.device_of(m, s.tower) : steps_.moved_from(n, n.inputs[0], s.device), local_type(plan_.value(n.outputs[0]), plan_.share(s.tower)));
  } else if (m.scope == Scope::tower) {
    for (int t : steps_.towers_for(n, s.device))
      if (int from = plan_.device_of(m, t); from >= 0 && steps_.stacks.is_joined(m, t)) take(from, n.ranged ? type_on(plan_, n, n.inputs[0], s.device) : local_type(read, plan_.share(t)));
  } else if (m.scope == Scope::device) {
    for (const Piece& p : steps_.pieces_of(m.owners))
      if (takes_part(plan_, n, p.low, s.device)) take(p.device, type_on(plan_, n, n.inputs[0], s.device));
  } else if (joins_ranges(plan_, n)) {
    for (int from : m.holders) take(from, type_on(plan_, m, n.inputs[0], from));
  } else {
    take(steps_.moved_from(n, n.inputs[0], s.device), local_type(read, plan_.share(-1)));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < out.size(); ++i) {
    if (out[i].first == out[kept].first) out[kept].second += out[i].second;
    else out[++kept] = out[i];
  }
  if (!out.empty()) out.resize(kept + 1);
  return out;
}

std::vector<Flow> Transfers::flows(int step) {
  std::vector<Flow> out;
  if (links_.empty()) return out;
  for (const auto& [from, bytes] : sources(step))
    if (bytes > 0) out.push_back({links_.route(from, steps_.steps[static_cast<std::size_t>(step)].device), bytes, 0, step, from});
  return out;
}

std::vector<std::pair<int, Flow>> Transfers::landing() const {
  std::vector<std::pair<int, Flow>> out;
  if (links_.empty()) return out;
  for (const Move& m : landing_moves(plan_)) out.push_back({m.to, {links_.route(m.from, m.to), static_cast<double>(m.bytes), 0, -1, m.from}});
  return out;
}

double Transfers::latency(int step, const std::vector<Flow>& flows) const {
  double out = -1;
  if (!flows.empty() && follows(step)) return 0;
  for (const Flow& f : flows) out = std::max(out, links_.latency(f.route));
  return out;
}

bool Transfers::arrives_in_place(int step) const { return !joins_by(node(step), {"sum", "max", "mean"}); }

int Transfers::parts(int step) {
  if (!moves(step)) return 0;
  const PlanNode& n = node(step);
  if (!is_op(n, kPreAggregate) && !is_join(n)) return 0;
  const ForecastStep& s = steps_.steps[static_cast<std::size_t>(step)];
  if (accumulates(n)) return 1 + static_cast<int>(steps_.stacks.of(n, s.tower).reads.size());
  auto [at, fresh] = parts_.try_emplace({s.node, is_op(n, kPreAggregate) ? s.device : -1});
  if (!fresh) return at->second;
  return at->second = static_cast<int>(steps_.sources(n, s.device).size());
}

void add_uses(const PlacedGraph& plan, const ForecastSteps& steps, Forecast& out) {
  std::map<int, std::set<int>> lanes;
  std::map<int, DeviceForecast> devices;
  for (std::size_t s = 0; s + 1 < steps.first.size(); ++s) {
    StreamForecast use{static_cast<int>(s), 0};
    double moving = 0;
    for (int k = steps.first[s]; k < steps.first[s + 1]; ++k) {
      const ForecastLaunch& l = out.launches[static_cast<std::size_t>(k)];
      use.busy += l.end - l.begin;
      moving += l.moving;
    }
    const int device = plan.streams[s].device;
    const bool gpu = plan.cluster.devices[static_cast<std::size_t>(device)].id.kind == "gpu";  // whose streams share what computes
    if (!gpu && steps.first[s + 1] > steps.first[s]) lanes[device].insert(steps.lane_of_stream[s]);
    devices[device].busy += gpu ? use.busy - moving : use.busy;
    out.streams.push_back(use);
  }
  std::vector<DeviceBytes> bytes = device_bytes(plan);
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    DeviceForecast& use = devices[static_cast<int>(d)];
    use.device = static_cast<int>(d);
    use.bytes = bytes[d].total();
    if (lanes[use.device].size() > 1) use.busy /= static_cast<double>(lanes[use.device].size());
    if (use.bytes || use.busy > 0) out.devices.push_back(use);
  }
}

namespace {

/// Values that the launches of some devices make, from the launch to the end of the last that reads them, or until something is written
/// over them.
class Lives {
 public:
  Lives(const PlacedGraph& plan, ForecastSteps& steps, const Forecast& f) : plan_(plan), f_(f), places_(plan), kept_(kept_values(plan)) {
    for (const DeviceGroup& g : plan.groups)
      if (!g.devices.empty()) chosen_.insert(g.devices.front());
    std::vector<double> joined(plan.values.size(), -1);
    std::map<std::pair<int, ValueIndex>, double> last;
    for (std::size_t s = 0; s < steps.steps.size(); ++s) {
      const ForecastLaunch& l = f.launches[s];
      const bool of_device = is_op(plan.nodes[static_cast<std::size_t>(l.node)], kPreAggregate);
      steps.each_read(static_cast<int>(s), [&](int from, ValueIndex v) {
        if (from < 0 && of_device) {
          sums_of_device_[v].insert(l.node);
        } else if (from < 0 || chosen_.contains(f.launches[static_cast<std::size_t>(from)].device)) {
          double& at = from < 0 ? joined[static_cast<std::size_t>(v)] : last[{from, v}];
          at = std::max(at, l.end);
        }
      });
    }
    std::set<ValueIndex> donated;
    for (const PlanNode& n : plan.nodes)
      for (auto [u, variable] : n.donates) donated.insert(u);
    for (std::size_t s = 0; s < steps.steps.size(); ++s) {
      const ForecastLaunch& l = f.launches[s];
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(l.node)];
      if (!chosen_.contains(l.device) || is_op(n, kInput)) continue;  // read where the caller's memory lies
      const Variant& variant = *steps.steps[s].variant;
      if (variant.scratch_bytes) add(l.device, {static_cast<int>(s), -1, l.begin, l.end, variant.scratch_bytes}, variant.scratch, n, l.tower);
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        const ValueIndex v = n.outputs[k];
        if (!plan.value(v).read || donated.contains(v)) continue;
        const auto at = last.find({static_cast<int>(s), v});
        const bool taken_off = accumulates(n) && !steps.stacks.of(n, l.tower).stays;
        const double read = taken_off ? added(steps, n, l) : std::max(joined[static_cast<std::size_t>(v)], at == last.end() ? 0.0 : at->second);
        const double end = is_op(n, kFetch) ? f.seconds : std::max(l.end, read);  // what is fetched is there for the caller
        const std::int64_t bytes = (n.ranged ? type_on(plan, n, v, l.device) : local_type(plan.value(v), plan.share(l.tower))).bytes();
        auto add_part = [&](int part) {
          add(l.device, {static_cast<int>(s), v, l.begin, taken_off ? end : std::max(end, summed(steps, v, part)), bytes}, places_.slot(l.node, k, part, l.device), n, part);
        };
        if (n.scope != Scope::device) add_part(l.tower);
        else
          for (const Piece& p : places_.pieces_on(n.owners, l.device)) add_part(p.low);
      }
    }
    for (auto& [device, lives] : of_device_) end_where_written_over(lives);
  }

  void fill(DeviceForecast& out) const {
    std::vector<std::pair<std::string, std::int64_t>> held;
    std::int64_t state = 0;
    for (const PlanNode& n : plan_.nodes)
      for (ValueIndex v : is_there(n) && std::count(n.holders.begin(), n.holders.end(), out.device) ? n.outputs : std::vector<ValueIndex>()) {
        if (n.once && !kept_[static_cast<std::size_t>(v)]) continue;
        held.emplace_back(plan_.value(v).name, type_on(plan_, n, v, out.device).bytes());
        state += held.back().second;
      }
    out.live = state;
    double fullest = -1;
    if (auto lives = of_device_.find(out.device); lives != of_device_.end()) {
      std::vector<std::pair<double, std::int64_t>> changes;
      for (const Life& l : lives->second) changes.emplace_back(l.begin, l.bytes), changes.emplace_back(l.end, -l.bytes);
      std::sort(changes.begin(), changes.end());  // at one time what ends goes first
      std::int64_t now = state;
      for (auto [time, bytes] : changes)
        if ((now += bytes) > out.live) out.live = now, fullest = time;
      for (const Life& l : lives->second)
        if (l.begin <= fullest && fullest < l.end) held.emplace_back(name(l), l.bytes);
    }
    std::stable_sort(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    held.resize(std::min<std::size_t>(held.size(), 8));
    out.peak = std::move(held);
  }
  bool chosen(int device) const { return chosen_.contains(device); }

 private:
  struct Life {
    int step;
    ValueIndex value;  // -1: the scratch of a kernel
    double begin, end;
    std::int64_t bytes;
    std::int64_t at = 0;
  };
  void add(int device, Life life, const Slot& slot, const PlanNode& n, int part) {
    if (life.bytes <= 0) return;
    life.at = places_.at(slot, n, part, device);
    of_device_[device].push_back(life);
  }
  /// When the devices' sums that take a part have done so: each takes those of its own towers.
  double summed(ForecastSteps& steps, ValueIndex v, int part) const {
    double out = 0;
    const auto sums = sums_of_device_.find(v);
    if (part < 0 || sums == sums_of_device_.end()) return out;
    for (int sum : sums->second) {
      const std::vector<int>& owners = plan_.vectors[static_cast<std::size_t>(plan_.nodes[static_cast<std::size_t>(sum)].owners)];
      const int step = steps.at(sum, -1, owners[static_cast<std::size_t>(part)]);
      out = std::max(out, f_.launches[static_cast<std::size_t>(step)].end);
    }
    return out;
  }
  /// When the tower that takes a sum off its stack has done so.
  double added(ForecastSteps& steps, const PlanNode& n, const ForecastLaunch& l) const {
    const std::vector<Accumulated>& all = steps.stacks.of(n);
    for (std::size_t t = static_cast<std::size_t>(l.tower) + 1; t < all.size() && !all[static_cast<std::size_t>(l.tower)].stays; ++t)
      if (std::count(all[t].reads.begin(), all[t].reads.end(), l.tower)) return f_.launches[static_cast<std::size_t>(steps.at(l.node, static_cast<int>(t), l.device))].end;
    return 0;
  }
  static void end_where_written_over(std::vector<Life>& lives) {
    std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) { return a.begin < b.begin; });
    std::map<std::int64_t, Life*> there;  // by the end of the bytes, which are apart
    for (Life& l : lives) {
      auto old = there.upper_bound(l.at);
      for (; old != there.end() && old->second->at < l.at + l.bytes; old = there.erase(old)) old->second->end = std::min(old->second->end, l.begin);
      there.emplace(l.at + l.bytes, &l);
    }
  }

  std::string name(const Life& l) const {
    const ForecastLaunch& launch = f_.launches[static_cast<std::size_t>(l.step)];
    const std::string& name = l.value < 0 ? plan_.nodes[static_cast<std::size_t>(launch.node)].name : plan_.value(l.value).name;
    return (l.value < 0 ? "scratch of " : "") + (launch.tower < 0 ? name : fmt::format("tower_{}/{}", launch.tower, name));
  }

  const PlacedGraph& plan_;
  const Forecast& f_;
  BufferPlaces places_;
  std::vector<bool> kept_;  // per value: what is made once
  std::set<int> chosen_;
  std::map<ValueIndex, std::set<int>> sums_of_device_;  ///< of a value's parts: nodes
  std::map<int, std::vector<Life>> of_device_;
};

}  // namespace

void add_memory(const PlacedGraph& plan, ForecastSteps& steps, Forecast& out) try {
  Lives lives(plan, steps, out);
  for (DeviceForecast& d : out.devices)
    if (lives.chosen(d.device)) lives.fill(d);
} catch (const UserError&) {  // a plan that does not say where all lies has its times
}

}  // namespace belfry
