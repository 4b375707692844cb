#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/offsets.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

std::vector<std::pair<int, int>> legal_order(const BoundPlan& bound, std::vector<std::string>* stuck) {
  std::vector<std::pair<int, int>> out;
  std::vector<int> ran(bound.streams.size());
  StepsInTurn steps;
  for (const auto& s : bound.streams) steps.counts.push_back(s.size());
  steps.together = [&](std::size_t s, std::size_t k) { return is_collective(bound.streams[s][k].variant) ? bound.streams[s][k].node : -1; };
  steps.ready = [&](std::size_t s, std::size_t k) {
    const auto& waits = bound.streams[s][k].waits;
    return std::all_of(waits.begin(), waits.end(), [&](const StepWait& w) { return ran[static_cast<std::size_t>(w.stream)] >= w.count; });
  };
  steps.run = [&](std::size_t s, std::size_t k) {
    out.emplace_back(static_cast<int>(s), static_cast<int>(k));
    ++ran[s];
  };
  const std::vector<std::size_t> at = run_in_turn(bound.plan, steps);
  bool whole = true;
  for (std::size_t s = 0; s < bound.streams.size(); ++s)
    if (at[s] < bound.streams[s].size()) {
      whole = false;
      if (stuck) stuck->push_back(bound.plan.nodes[static_cast<std::size_t>(bound.streams[s][at[s]].node)].name);
    }
  if (!whole) out.clear();
  return out;
}

namespace {

/// Places in a device's way at which its towers wait, at the most.
constexpr std::size_t kMostParts = 256;
/// Such places of its main stream, at the most, each with as many of its towers.
constexpr std::size_t kMostMains = 6;

using Order = std::vector<std::pair<int, int>>;

/// Streams with steps, devices' main ones apart.
struct Streams {
  explicit Streams(const BoundPlan& bound) {
    for (std::size_t s = 0; s < bound.streams.size(); ++s)
      if (!bound.streams[s].empty()) (bound.plan.streams[s].name == "main" ? mains : towers).push_back(s);
  }
  std::vector<std::size_t> mains, towers;
};

/// All streams keep step with each other as far as their waits allow; `eager`: the main ones do all that they can at once.
Order side_by_side(const BoundPlan& bound, bool eager) {
  Order out;
  std::vector<std::size_t> at(bound.streams.size());
  std::size_t longest = 0;
  for (const auto& s : bound.streams) longest = std::max(longest, s.size());
  for (std::size_t round = 1, moved = 1; round <= longest || moved; ++round) {
    moved = 0;
    for (std::size_t s = 0; s < bound.streams.size(); ++s) {
      const auto& steps = bound.streams[s];
      auto ready = [&](const Step& step) {
        return std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; });
      };
      const bool at_once = eager && bound.plan.streams[s].name == "main";
      for (; at[s] < steps.size() && (at_once || at[s] * longest < steps.size() * round) && ready(steps[at[s]]); ++moved) out.emplace_back(static_cast<int>(s), static_cast<int>(at[s]++));
    }
  }
  return out;
}

/// A step of a stream, and how many it has.
struct Stop {
  std::size_t part = 1, parts = 1;
};

/// Which streams go first: the last ones, the first ones, or of the main ones those of one device, as far as the others let it.
enum class First { last, first, ahead };

/// Runs streams group by group, each as far as its waits and its stop allow. Who waits is looked at again when whoever it waits for has moved.
class GroupsInTurn {
 public:
  explicit GroupsInTurn(const BoundPlan& bound) : bound_(bound), at_(bound.streams.size()), met_(at_.size()), waiters_(at_.size()), place_(at_.size()) {}

  struct Group {
    std::vector<std::size_t> streams;  ///< in their turn
    Stop stop = {};                    ///< of those of `device`
    bool one = false;                  ///< a step at a time, and the groups before have their turn again
    std::set<std::size_t> awake = {};  // places in `streams`
  };
  /// Until none moves. Those that are in no group stand still.
  void run(std::vector<Group> groups, int device) {
    place_.assign(place_.size(), {nullptr, 0});
    for (Group& g : groups)
      for (std::size_t k = 0; k < g.streams.size(); ++k) {
        place_[g.streams[k]] = {&g, k};
        g.awake.insert(g.awake.end(), k);
      }
    while (std::any_of(groups.begin(), groups.end(), [&](Group& g) { return moves(g, device); })) {
    }
  }
  Order take() { return std::move(out_); }

 private:
  /// Gives whether a step ran.
  bool moves(Group& g, int device) {
    bool moved = false;
    for (auto next = g.awake.begin(); next != g.awake.end() && !(g.one && moved);) {
      const std::size_t place = *next, s = g.streams[place];
      const Stop stop = bound_.plan.streams[s].device == device ? g.stop : Stop{};
      const std::size_t count = bound_.streams[s].size();
      auto may = [&] { return at_[s] < count && at_[s] * stop.parts < count * stop.part && ready(s); };
      while (!(g.one && moved) && may()) {
        step(s);
        moved = true;
      }
      if (!(g.one && moved)) g.awake.erase(place);
      next = g.awake.upper_bound(place);
    }
    return moved;
  }

  /// Else it is asleep until that which it waits for moves.
  bool ready(std::size_t s) {
    const auto& waits = bound_.streams[s][at_[s]].waits;
    for (; met_[s] < waits.size(); ++met_[s]) {
      const StepWait& w = waits[met_[s]];
      if (static_cast<int>(at_[static_cast<std::size_t>(w.stream)]) >= w.count) continue;
      waiters_[static_cast<std::size_t>(w.stream)].push_back(s);
      return false;
    }
    return true;
  }

  void step(std::size_t s) {
    out_.emplace_back(static_cast<int>(s), static_cast<int>(at_[s]++));
    met_[s] = 0;
    for (std::size_t w : std::exchange(waiters_[s], {}))
      if (auto [group, place] = place_[w]; group) group->awake.insert(place);
  }

  const BoundPlan& bound_;
  Order out_;
  std::vector<std::size_t> at_, met_;               // per stream: its next step, and how many of the waits of that are met
  std::vector<std::vector<std::size_t>> waiters_;   // per stream
  std::vector<std::pair<Group*, std::size_t>> place_;
};

/// The streams of towers before the main ones, those of one device no further than a stop; then the main ones as far as they go, the
/// device's no further than `main`; then the rest.
Order towers_first(const BoundPlan& bound, const Streams& streams, First first, int device, Stop towers, Stop main = {}) {
  auto in_turn = [&](std::vector<std::size_t> some) {
    if (first == First::last) std::reverse(some.begin(), some.end());
    return some;
  };
  std::vector<std::size_t> mine, others;
  for (std::size_t s : streams.mains) (first != First::ahead || bound.plan.streams[s].device == device ? mine : others).push_back(s);
  GroupsInTurn out(bound);
  out.run({{in_turn(streams.towers), towers}, {in_turn(streams.mains), main, true}}, device);
  out.run({{in_turn(mine), main}, {in_turn(others), main, true}}, device);
  out.run({{in_turn(streams.towers)}, {in_turn(streams.mains), {}, true}}, device);
  return out.take();
}

/// Steps begin in the order given and take as long as they can: until the next of their stream or one that waits for them begins.
std::vector<std::vector<std::int64_t>> ends_of(const BoundPlan& bound, const Order& order) {
  std::vector<std::vector<std::int64_t>> out;
  for (const auto& s : bound.streams) out.emplace_back(s.size(), static_cast<std::int64_t>(order.size()) + 1);
  std::int64_t now = 0;
  for (auto [s, k] : order) {
    const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    auto ends = [&](int stream, int count) {
      if (count > 0) out[static_cast<std::size_t>(stream)][static_cast<std::size_t>(count) - 1] = std::min(out[static_cast<std::size_t>(stream)][static_cast<std::size_t>(count) - 1], now);
    };
    ends(s, k);
    for (const StepWait& w : step.waits) ends(w.stream, w.count);
    ++now;
  }
  return out;
}

/// What lives when in one order, per device: from which step of the order to which.
std::vector<std::vector<Block>> lives(const BoundPlan& bound, const Order& order) {
  std::map<Tag, Block> life;
  std::vector<std::vector<Block>> blocks(bound.plan.cluster.devices.size());
  std::int64_t now = 0;
  const auto end = static_cast<std::int64_t>(order.size()) + 1;
  const std::vector<std::vector<std::int64_t>> ends = ends_of(bound, order);
  for (const BufferRef& kept : bound.kept) life[kept.tag] = {aligned_bytes(kept.bytes), 0, end};
  for (auto [s, k] : order) {
    const Step& step = bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    const PlanNode& n = bound.plan.nodes[static_cast<std::size_t>(step.node)];
    ++now;
    const std::int64_t last = ends[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    for (const auto& parts : step.reads)
      for (const Part& p : parts)
        if (auto at = life.find(p.buffer.tag); at != life.end()) at->second.end = std::max(at->second.end, last);
    auto in_place_of = [&](const BufferRef& b) -> Block* {  // what this step reads at the same place, and nobody after it
      for (const auto& parts : step.reads)
        for (const Part& p : parts)
          if (p.buffer.space == b.space && p.buffer.at == b.at && p.buffer.bytes == b.bytes && b.bytes)
            if (auto at = life.find(p.buffer.tag); at != life.end()) return &at->second;
      return nullptr;
    };
    for (const auto& parts : step.writes)
      for (const Part& p : parts) {
        if (p.buffer.space < 0 || std::any_of(n.donates.begin(), n.donates.end(), [&](auto d) { return d.first == p.buffer.tag.value; })) continue;
        if (Block* reused = in_place_of(p.buffer)) reused->end = now - 1;
        life[p.buffer.tag] = {aligned_bytes(p.buffer.bytes), now, n.op == kFetch ? end : last};
      }
    if (step.scratch.bytes) blocks[static_cast<std::size_t>(step.device)].push_back({aligned_bytes(step.scratch.bytes), now, last});
  }
  for (const auto& [tag, block] : life) blocks[static_cast<std::size_t>(tag.device)].push_back(block);
  return blocks;
}

/// Where streams of a device, its main one or those of towers, wait while others go on: where most is in use in some order, the fullest
/// first, each so far (a part of `apart`) from the others.
std::vector<Stop> fullest(const BoundPlan& bound, int device, bool main, const Order& order, const std::vector<Block>& blocks, std::size_t count, std::size_t apart) {
  std::vector<Stop> out;
  std::vector<std::int64_t> use(order.size() + 3);
  for (const Block& b : blocks) use[static_cast<std::size_t>(b.start)] += b.size, use[static_cast<std::size_t>(std::min<std::int64_t>(b.end, std::ssize(order) + 1)) + 1] -= b.size;
  std::int64_t now = 0;
  std::vector<std::pair<std::int64_t, Stop>> full;
  for (std::size_t k = 0; k < order.size(); ++k) {
    now += use[k + 1];
    const auto [stream, step] = order[k];
    const PlanStream& s = bound.plan.streams[static_cast<std::size_t>(stream)];
    if (s.device == device && (s.name == "main") == main) full.push_back({-now, {static_cast<std::size_t>(step) + 1, bound.streams[static_cast<std::size_t>(stream)].size()}});
  }
  std::stable_sort(full.begin(), full.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [bytes, stop] : full) {
    if (out.size() >= count) break;
    auto near = [&, &stop = stop](const Stop& o) { return o.parts == stop.parts && std::max(o.part, stop.part) - std::min(o.part, stop.part) < std::max<std::size_t>(1, stop.parts / apart); };
    if (std::none_of(out.begin(), out.end(), near)) out.push_back(stop);
  }
  return out;
}

}  // namespace

std::vector<std::int64_t> live_maxima(const BoundPlan& bound, std::size_t most_steps) {
  std::vector<std::int64_t> out(bound.plan.cluster.devices.size());
  std::vector<std::vector<Block>> blocks;
  auto look_at = [&](const Order& order) {
    blocks = lives(bound, order);
    for (std::size_t d = 0; d < out.size(); ++d) out[d] = std::max(out[d], live_maximum(blocks[d]));
  };
  look_at(legal_order(bound));
  look_at(side_by_side(bound, false));
  const Order eager = side_by_side(bound, true);
  look_at(eager);
  std::size_t steps = 1;
  for (const auto& s : bound.streams) steps += s.size();
  std::vector<int> devices;  // that run towers
  for (const PlanStream& s : bound.plan.streams)
    if (s.name != "main" && (devices.empty() || devices.back() != s.device)) devices.push_back(s.device);
  const std::size_t parts = std::min(most_steps / (2 * steps * std::max<std::size_t>(devices.size(), 1)), kMostParts);
  const std::vector<std::vector<Block>> in_eager = blocks;
  const Streams streams(bound);
  for (First first : {First::last, First::first}) look_at(towers_first(bound, streams, first, -1, {}));
  for (int d : parts ? devices : std::vector<int>()) {  // those of more have no stops
    auto full = [&](bool main, std::size_t count, std::size_t apart) { return fullest(bound, d, main, eager, in_eager[static_cast<std::size_t>(d)], count, apart); };
    std::vector<Stop> stops;
    for (std::size_t part = 1; part <= parts / 2; ++part) stops.push_back({part, parts / 2});
    const std::vector<Stop> some = full(false, parts - parts / 2, 100);
    stops.insert(stops.end(), some.begin(), some.end());
    for (First first : {First::last, First::ahead})
      for (const Stop& stop : stops) look_at(towers_first(bound, streams, first, d, stop));
    const std::size_t mains = std::min(kMostMains, parts / kMostMains);  // as many orders as there are parts, at the most
    for (const Stop& main : full(true, mains, kMostMains))
      for (const Stop& stop : full(false, mains, kMostMains)) look_at(towers_first(bound, streams, First::last, d, stop, main));
  }
  return out;
}

}  // namespace belfry
