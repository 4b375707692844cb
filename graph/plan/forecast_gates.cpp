#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/forecast_steps_internal.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Pictures are drawn of plans that no verifier has seen.
void check_waits(const PlacedGraph& plan, const PlanNode& n) {
  for (const Wait& w : n.waits) {
    if (w.value < 0 || w.value >= static_cast<int>(plan.values.size())) throw UserError(fmt::format("unbound: '{}' waits for no value", n.name));
    const PlanNode& m = plan.maker(w.value);
    const bool of_towers = m.scope == Scope::tower, own = w.relation == Wait::kOwn;
    const bool fits = own || w.relation == Wait::kTowers || w.relation == Wait::kLocal ? of_towers && (!own || n.scope == Scope::tower) : !of_towers && !m.holders.empty();
    if (!fits) throw UserError(fmt::format("unbound: '{}' waits for '{}' of relation {}, but that is {}", n.name, plan.value(w.value).name, to_string(w.relation), of_towers ? "the towers'" : "no tower's"));
  }
}

}  // namespace

void ForecastSteps::add_producer(int gate, int step) {
  ++producers[static_cast<std::size_t>(gate)];
  opening_.emplace_back(step, gate);
}

void ForecastSteps::wait_at(int step, int gate) {
  if (producers[static_cast<std::size_t>(gate)]) waiting_.emplace_back(step, gate);
}

int ForecastSteps::new_gate() {
  producers.push_back(0);
  return static_cast<int>(producers.size()) - 1;
}

int ForecastSteps::alone(int step) {
  int& known = alone_[static_cast<std::size_t>(step)];
  if (known < 0) {
    known = new_gate();
    add_producer(known, step);
  }
  return known;
}

std::pair<int, bool> ForecastSteps::gate(const GateKey& key) {
  auto [at, fresh] = gates_.try_emplace(key, static_cast<int>(producers.size()));
  if (fresh) new_gate();
  return {at->second, fresh};
}

void ForecastSteps::make_gates() {
  alone_.assign(steps.size(), -1);
  opening_.reserve(steps.size());
  waiting_.reserve(2 * steps.size());
  producers.reserve(steps.size());
  gates_.reserve(plan.nodes.size() / 2);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    check_waits(plan, plan.nodes[i]);
    for (const Wait& w : plan.nodes[i].waits)
      if (w.relation == Wait::kReaders) gate_readers(static_cast<int>(i), w.value);
  }
  for (std::size_t s = 0; s < steps.size(); ++s)
    for (const Wait& w : plan.nodes[static_cast<std::size_t>(steps[s].node)].waits) gate_waits(static_cast<int>(s), w);
  if (!after_.empty()) gate_frames();
  opens = {steps.size(), [&](auto add) {
             for (auto [step, gate] : opening_) add(static_cast<std::size_t>(step), gate);
           }};
  waits = {steps.size(), [&](auto add) {
             for (auto [step, gate] : waiting_) add(static_cast<std::size_t>(step), gate);
           }};
  waiters = {producers.size(), [&](auto add) {
               for (auto [step, gate] : waiting_) add(static_cast<std::size_t>(gate), step);
             }};
}

/// A tower leaves its slot when the last of those on other devices that read its frame has ended.
void ForecastSteps::gate_frames() {
  // What is no copy reads another device's frame only where they share a memory space.
  const std::vector<int> spaces = space_numbers(plan.cluster);
  std::vector<int> in_space(spaces.size());
  for (int space : spaces) ++in_space[static_cast<std::size_t>(space)];
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].tower < 0 || (in_space[static_cast<std::size_t>(spaces[static_cast<std::size_t>(steps[s].device)])] == 1 && !is_op(plan.nodes[static_cast<std::size_t>(steps[s].node)], kCopy))) continue;
    each_read(static_cast<int>(s), [&](int from, ValueIndex) {
      if (from >= 0 && steps[static_cast<std::size_t>(from)].tower >= 0 && steps[static_cast<std::size_t>(from)].device != steps[s].device)
        foreign_[{steps[s].tower, steps[static_cast<std::size_t>(from)].device}].push_back(static_cast<int>(s));
    });
  }
  for (auto [at, tower] : after_) {
    auto f = foreign_.find({tower, at.second});
    if (f == foreign_.end()) continue;
    auto [g, fresh] = gate({kFrameGate, tower, at.second, 0});
    for (int s : f->second)
      if (fresh) add_producer(g, s);
    wait_at(at.first, g);
  }
}

void ForecastSteps::gate_waits(int s, const Wait& w) {
  const ForecastStep step = steps[static_cast<std::size_t>(s)];
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
  const PlanNode& m = plan.maker(w.value);
  const int maker = plan.value(w.value).maker;
  auto towers = [&](GateKind kind, int device) {
    auto [g, fresh] = gate({kind, w.value, device, 0});
    for (int t = 0; fresh && t < plan.present(); ++t)
      if (int e = plan.device_of(m, t); e >= 0 && (device < 0 || e == device)) add_producer(g, at(maker, t, e));
    wait_at(s, g);
  };
  switch (w.relation) {
    case Wait::kOwn: {
      auto from = is_op(n, kCopy) ? Instances::At{maker, plan.device_of(m, step.tower)} : instances_.own(w.value, step.tower, step.device);
      int p = at(from.node, step.tower, from.device);
      if (steps[static_cast<std::size_t>(p)].stream != step.stream) wait_at(s, alone(p));
      return;
    }
    case Wait::kTowers: return towers(kTowersGate, -1);
    case Wait::kLocal: return towers(kLocalGate, step.device);
    case Wait::kEvery: {
      auto [g, fresh] = gate({kEveryGate, w.value, -1, 0});
      if (fresh)
        for (int e : m.holders) add_producer(g, at(maker, -1, e));
      return wait_at(s, g);
    }
    case Wait::kShared: {
      auto from = moves_values(n) ? Instances::At{maker, moved_from(n, w.value, step.device)} : shared(w.value, step.device);
      if (is_there(plan.nodes[static_cast<std::size_t>(from.node)])) return;
      int p = at(from.node, -1, from.device);
      if (steps[static_cast<std::size_t>(p)].stream != step.stream) wait_at(s, alone(p));
      return;
    }
    case Wait::kReaders:
      if (auto at = gates_.find(GateKey{kReadersGate, step.node, w.value, step.device}); at != gates_.end()) wait_at(s, at->second);
  }
}

/// Who writes a variable waits for those that read the instance on its device.
void ForecastSteps::gate_readers(int node, ValueIndex v) {
  const int maker = plan.value(v).maker;
  for (int r : readers_[static_cast<std::size_t>(v)]) {
    if (r == node) continue;
    const PlanNode& reader = plan.nodes[static_cast<std::size_t>(r)];
    auto consider = [&](int t, int e) {
      if (joins_ranges(plan, reader)) {
        for (int from : plan.maker(v).holders) add_producer(gate({kReadersGate, node, v, from}).first, at(r, t, e));
        return;
      }
      auto from = moves_values(reader) ? Instances::At{maker, moved_from(reader, v, e)} : shared(v, e);
      if (from.node == maker) add_producer(gate({kReadersGate, node, v, from.device}).first, at(r, t, e));
    };
    if (reader.scope == Scope::tower) {
      for (int t = 0; t < plan.present(); ++t)
        if (int e = plan.device_of(reader, t); e >= 0) consider(t, e);
    } else {
      for (int e : reader.holders) consider(-1, e);
    }
  }
}

/// Streams that share a host's thread run in the order that Program gives them.
void ForecastSteps::make_lanes() {
  std::map<int, int> of_thread;
  for (const PlanStream& s : plan.streams) {
    const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(s.device)].id;
    if (id.kind == "gpu" || id.host != 0) lane_of_stream.push_back(static_cast<int>(lanes.size())), lanes.emplace_back();
    else {
      auto [at, fresh] = of_thread.try_emplace(s.thread, static_cast<int>(lanes.size()));
      if (fresh) lanes.emplace_back();
      lane_of_stream.push_back(at->second);
    }
  }
  std::vector<int> left = producers;
  std::size_t done = 0;
  StepsInTurn turns;
  for (std::size_t s = 0; s < plan.streams.size(); ++s) turns.counts.push_back(static_cast<std::size_t>(first[s + 1] - first[s]));
  auto at = [&](std::size_t s, std::size_t k) { return static_cast<std::size_t>(first[s]) + k; };
  turns.together = [&](std::size_t s, std::size_t k) { return is_collective(steps[at(s, k)].variant) ? steps[at(s, k)].node : -1; };
  turns.ready = [&](std::size_t s, std::size_t k) { return std::all_of(waits[at(s, k)].begin(), waits[at(s, k)].end(), [&](int g) { return left[static_cast<std::size_t>(g)] == 0; }); };
  turns.run = [&](std::size_t s, std::size_t k) {
    for (int g : opens[at(s, k)]) --left[static_cast<std::size_t>(g)];
    lanes[static_cast<std::size_t>(lane_of_stream[s])].push_back(static_cast<int>(at(s, k)));
    ++done;
  };
  run_in_turn(plan, turns);
  if (done < steps.size()) throw UserError("stuck: the streams of the plan wait for each other");
}

}  // namespace belfry
