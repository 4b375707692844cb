#include <algorithm>
#include <map>
#include <set>

#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

using Key = std::tuple<int, std::int64_t, int>;

/// The one key by which all streams of towers are ordered: from phase to phase of a tower it grows.
class PhaseKeys {
 public:
  explicit PhaseKeys(const PlacedGraph& plan) : order_(plan.placement.order) {
    int last = 0;
    for (const PlanNode& n : plan.nodes)
      for (int phase : n.phases) last = std::max(last, phase);
    for (const TowerClass& c : plan.classes)
      for (const LocalPlace& at : c.pattern) devices_ = std::max(devices_, at.device + 1);
    half_ = last / 2 + 1;
  }
  Key operator()(int epoch, int phase, int tower) const {
    switch (order_) {
      case PhaseOrder::gpipe: return {epoch, phase, tower};
      case PhaseOrder::one_f_one_b: return {epoch, std::int64_t{2} * tower + phase, -phase};
      case PhaseOrder::interleaved: {
        // Towers in groups of as many as there are devices; a group's next chunk follows on its last (Narayanan et al. 2021).
        const std::int64_t chunks = (half_ + devices_ - 1) / devices_, group = 2 * (tower / devices_ * chunks * devices_ + tower % devices_);
        return {epoch, group + (phase < half_ ? slot(phase) : slot(half_ - 1) + 1 + slot(phase - half_)), -phase};
      }
      case PhaseOrder::by_tower: break;
    }
    return {epoch, tower, phase};
  }

 private:
  /// When a phase would run of a tower that is alone.
  std::int64_t slot(int phase) const { return std::int64_t{2} * phase; }

  PhaseOrder order_;
  int devices_ = 1, half_ = 1;  ///< half: phases of the forward pass
};

using Phase = std::pair<int, int>;  // epoch, phase

/// Per class and device of its towers, phases in order.
class PhaseTable {
 public:
  explicit PhaseTable(const PlacedGraph& plan) : phases_(plan.classes.size()) {
    for (std::size_t c = 0; c < phases_.size(); ++c) phases_[c].resize(plan.classes[c].kinds.size());
  }
  void add(std::size_t c, int local, Phase phase) {
    auto& list = phases_[c][static_cast<std::size_t>(local)];
    if (list.empty() || list.back() != phase) list.push_back(phase);
  }
  void sort() {
    for (auto& of_class : phases_)
      for (auto& list : of_class) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
      }
  }
  const std::vector<Phase>& at(int c, int local) const { return phases_[static_cast<std::size_t>(c)][static_cast<std::size_t>(local)]; }

 private:
  std::vector<std::vector<std::vector<Phase>>> phases_;
};

PhaseTable phases_by_device(const PlacedGraph& plan) {
  PhaseTable out(plan);
  for (const PlanNode& n : plan.nodes)
    if (n.scope == Scope::tower)
      for (std::size_t c = 0; c < plan.classes.size(); ++c)
        if (n.phases[c] >= 0) out.add(c, plan.classes[c].pattern[static_cast<std::size_t>(n.vector)].device, {n.epoch, n.phases[c]});
  out.sort();
  return out;
}

/// Phases on other devices that read a tower's frame on a device.
PhaseTable foreign_phases(const PlacedGraph& plan, const NumberLists& readers) {
  PhaseTable out(plan);
  if (plan.vectors.size() < 2) return out;
  for (const PlanNode& n : plan.nodes) {
    if (n.scope != Scope::tower) continue;
    auto add = [&](ValueIndex v, bool copied) {
      for (int i : readers[static_cast<std::size_t>(v)]) {
        const PlanNode& r = plan.nodes[static_cast<std::size_t>(i)];
        if (r.scope != Scope::tower || r.vector == n.vector || (copied && is_op(r, kCopy))) continue;
        for (std::size_t c = 0; c < plan.classes.size(); ++c) {
          LocalPlace a = plan.classes[c].pattern[static_cast<std::size_t>(n.vector)], b = plan.classes[c].pattern[static_cast<std::size_t>(r.vector)];
          if (a.device >= 0 && b.device >= 0 && a.device != b.device && (is_op(r, kCopy) || a.space == b.space)) out.add(c, a.device, {r.epoch, r.phases[c]});
        }
      }
    };
    for (ValueIndex v : n.outputs) add(v, false);
    if (is_op(n, kCopy)) add(copied_by(plan, n), true);  // what it copies is what its readers name
  }
  out.sort();
  return out;
}

struct TowerOnDevice {
  int tower = 0, cls = 0, local = 0;
};

/// A tower holds a slot from its first phase on the stream to the last phase, here or of a foreign reader.
void give_slots(PlanStream& stream, const PhaseKeys& key_of, const std::map<int, Key>& release) {
  std::map<int, int> slot;                       // held, by tower
  std::vector<std::pair<int, int>> free;         // slot, tower that left it
  for (StreamEntry& e : stream.entries) {
    Key key = key_of(e.epoch, e.phase, e.tower);
    for (auto at = slot.begin(); at != slot.end();) {
      if (release.at(at->first) < key) {
        free.emplace_back(at->second, at->first);
        at = slot.erase(at);
      } else ++at;
    }
    if (!slot.contains(e.tower)) {
      if (free.empty()) slot[e.tower] = stream.slots++;
      else {
        slot[e.tower] = free.back().first;
        e.after = free.back().second;
        free.pop_back();
      }
    }
    e.slot = slot[e.tower];
  }
}

/// Host threads: at most cores / threads-per-tower compute at once; a device's main stream shares the thread of its first
/// tower stream. A GPU computes by itself: one more thread each, which launches.
void set_threads(PlacedGraph& plan) {
  int threads = std::max(1, plan.cluster.cores / std::max(1, plan.threads));
  auto launches = [&](const PlanStream& s) { return plan.cluster.devices[static_cast<std::size_t>(s.device)].id.kind == "gpu"; };
  std::map<int, int> of_device;
  int next = 0;
  for (PlanStream& s : plan.streams)
    if (s.name != "main" && !launches(s)) {
      s.thread = next++ % threads;
      of_device.try_emplace(s.device, s.thread);
    }
  int past = std::max(1, std::min(next, threads));
  for (PlanStream& s : plan.streams) {
    if (launches(s)) {
      auto [known, fresh] = of_device.try_emplace(s.device, past);
      past += fresh;
      s.thread = known->second;
    } else if (s.name == "main") {
      s.thread = of_device.contains(s.device) ? of_device[s.device] : 0;
    }
  }
}

/// Per stream, whether others of its host's thread go first.
std::vector<bool> gives_way(const PlacedGraph& plan) {
  auto computes = [&](const PlanStream& s) { return plan.cluster.devices[static_cast<std::size_t>(s.device)].id.kind != "gpu"; };
  std::set<int> busy;  // threads
  for (const PlanStream& s : plan.streams)
    if (s.name != "main" && computes(s)) busy.insert(s.thread);
  std::vector<bool> out;
  for (const PlanStream& s : plan.streams) out.push_back(s.name == "main" && computes(s) && busy.contains(s.thread));
  return out;
}

}  // namespace

std::vector<std::size_t> run_in_turn(const PlacedGraph& plan, const StepsInTurn& steps) {
  const std::vector<bool> last = gives_way(plan);
  std::vector<std::size_t> at(last.size());
  using Steps = std::vector<std::pair<std::size_t, std::size_t>>;
  std::map<int, Steps> collectives;
  for (std::size_t s = 0; s < last.size(); ++s)
    for (std::size_t k = 0; k < steps.counts[s]; ++k)
      if (const int node = steps.together(s, k); node >= 0) collectives[node].emplace_back(s, k);
  auto is_next = [&](std::size_t s, std::size_t k) { return at[s] == k && k < steps.counts[s] && steps.ready(s, k); };
  auto step = [&](std::size_t s) {
    if (!is_next(s, at[s])) return false;
    const int node = steps.together(s, at[s]);
    if (node < 0) return steps.run(s, at[s]++), true;
    const Steps& ranks = collectives[node];
    for (auto [t, k] : ranks)
      if (!is_next(t, k)) return false;
    for (auto [t, k] : ranks) steps.run(t, k), ++at[t];
    return true;
  };
  auto run = [&](bool those_that_give_way) {  // says whether a step ran
    bool moved = false;
    for (std::size_t s = 0; s < last.size(); ++s)
      while (last[s] == those_that_give_way && step(s)) moved = true;
    return moved;
  };
  while (run(false) || run(true));
  return at;
}

const PlanStream* stream_out_of_order(const PlacedGraph& plan) {
  const PhaseKeys key_of(plan);
  auto before = [&](const StreamEntry& a, const StreamEntry& b) { return key_of(a.epoch, a.phase, a.tower) < key_of(b.epoch, b.phase, b.tower); };
  for (const PlanStream& s : plan.streams)
    if (!std::is_sorted(s.entries.begin(), s.entries.end(), before)) return &s;
  return nullptr;
}

void set_streams(PlacedGraph& plan, const NumberLists& readers) {
  const PhaseTable phases = phases_by_device(plan), foreign = foreign_phases(plan, readers);
  std::map<int, std::map<int, TowerOnDevice>> where;  // device → tower
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers)
      for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
        int local = plan.classes[c].pattern[x].device;
        if (local >= 0 && !phases.at(static_cast<int>(c), local).empty()) where[plan.vectors[x][static_cast<std::size_t>(t)]][t] = {t, static_cast<int>(c), local};
      }
  const PhaseKeys key_of(plan);
  plan.streams.clear();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) plan.streams.push_back({static_cast<int>(d), "main", {}, 0, 0});
  for (const auto& [device, towers] : where) {
    std::vector<TowerOnDevice> mine;
    for (const auto& [t, x] : towers) mine.push_back(x);
    std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(plan.cluster.devices[static_cast<std::size_t>(device)].streams), mine.size());
    for (std::size_t s = 0; s < count; ++s) {
      PlanStream stream{device, "tower" + std::to_string(s), {}, 0, 0};
      std::map<int, Key> release;
      for (std::size_t i = s; i < mine.size(); i += count) {
        const TowerOnDevice& x = mine[i];
        Key last{-1, 0, 0};
        for (auto [e, h] : phases.at(x.cls, x.local)) {
          stream.entries.push_back({x.tower, e, h, 0, -1});
          last = std::max(last, key_of(e, h, x.tower));
        }
        for (auto [e, h] : foreign.at(x.cls, x.local)) last = std::max(last, key_of(e, h, x.tower));
        release[x.tower] = last;
      }
      std::sort(stream.entries.begin(), stream.entries.end(), [&](const StreamEntry& a, const StreamEntry& b) {
        return key_of(a.epoch, a.phase, a.tower) < key_of(b.epoch, b.phase, b.tower);
      });
      give_slots(stream, key_of, release);
      plan.streams.push_back(std::move(stream));
    }
  }
  set_threads(plan);
}

}  // namespace belfry
