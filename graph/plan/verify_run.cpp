#include <algorithm>
#include <map>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/links.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/plan/over_memory.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/readers.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/plan/watcher.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class RunChecker : public PlanChecker {
 public:
  using PlanChecker::PlanChecker;

  void run() {
    BoundPlan bound(plan_);
    check_bytes(bound);
    check_joins(bound);
    check_landed(bound);
    check_spaces(bound);
    if (found_.empty()) check_once(bound);
    if (found_.empty()) check_order(bound);
    check_regions(bound);
    check_phases();
  }

 private:
  template <class F>
  static void each_step(const BoundPlan& bound, F f) {
    for (const auto& stream : bound.streams) std::for_each(stream.begin(), stream.end(), f);
    std::for_each(bound.once.begin(), bound.once.end(), f);
  }

  /// Every buffer inside its device's part of the arena, aligned; no device over its memory.
  void check_bytes(const BoundPlan& bound) {
    for (const std::string& over : over_memory(plan_)) object("memory: {}", over);
    auto check = [&](const BufferRef& b, int device, const std::string& name) {
      auto d = static_cast<std::size_t>(device);
      if (b.space == kFeedSpace) return;
      if (b.at % kAlignment) object("alignment: '{}' lies at byte {}", name, b.at);
      if (b.bytes < 0 || b.at < bound.device_start[d] || b.at + b.bytes > bound.device_start[d] + bound.device_bytes[d]) object("outside: '{}' leaves the arena of {}", name, name_of(static_cast<int>(d)));
    };
    each_step(bound, [&](const Step& s) {
      for (const auto& parts : s.writes)
        for (const Part& p : parts) check(p.buffer, s.device, plan_.value(p.buffer.tag.value).name);
      if (s.scratch.bytes) check(s.scratch, s.device, node(s.node).name + " (scratch)");
      check_beside(s);
    });
    for (const StateBuffer& s : bound.state) check(s.buffer, s.device, node(s.node).name);
  }

  /// What a region takes besides the frames ends with the last buffer of its devices.
  void check_regions(const BoundPlan& bound) {
    std::vector<std::int64_t> past(plan_.cluster.devices.size());
    auto lies = [&](const BufferRef& b, std::int64_t bytes, int device) {
      auto d = static_cast<std::size_t>(device);
      if (b.space >= 0) past[d] = std::max(past[d], b.at + aligned_bytes(bytes) - bound.device_start[d]);
    };
    each_step(bound, [&](const Step& s) {
      const PlanNode& n = node(s.node);
      auto room = [&](ValueIndex v, const Part& p) {  // all have it for the longest range, and for the largest share
        return n.ranged ? type_on(plan_, n, v, n.holders.front()).bytes() : n.scope == Scope::tower ? local_bytes(plan_.value(v), plan_.share(0)) : p.buffer.bytes;
      };
      for (std::size_t k = 0; k < s.writes.size(); ++k)
        for (const Part& p : s.writes[k]) lies(p.buffer, room(n.outputs[k], p), s.device);
      if (s.scratch.bytes) lies(s.scratch, s.scratch.bytes, s.device);
    });
    const std::vector<DeviceBytes> bytes = device_bytes(plan_);
    for (const DeviceGroup& g : plan_.groups) {
      std::int64_t end = 0;
      for (int d : g.devices) end = std::max(end, past[static_cast<std::size_t>(d)]);
      if (!g.devices.empty() && bytes[static_cast<std::size_t>(g.devices.front())].region > 0 && g.state + g.region > end)
        object("memory: the region of {} has {} bytes, but what lies in it takes {}", name_of(g.devices.front()), g.region, std::max<std::int64_t>(0, end - g.state));
    }
  }

  /// Inside a step: outputs and scratch apart, and written over an input only where the op allows it, byte for byte; sums over one of
  /// their own parts, which no other sum of the step reads.
  void check_beside(const Step& s) {
    const PlanNode& n = node(s.node);
    auto meet = [](const BufferRef& a, const BufferRef& b) { return a.space >= 0 && a.space == b.space && a.at < b.at + b.bytes && b.at < a.at + a.bytes; };
    const bool adds = adds_parts(n);
    auto allowed = [&](std::size_t k, std::size_t i, const Part& whole, const Part& part) {
      if (whole.buffer.at != part.buffer.at || whole.buffer.bytes != part.buffer.bytes) return false;
      if (adds) return n.op != kPreAggregate || (part.low >= whole.low && part.high <= whole.high);
      const std::vector<std::pair<int, int>> pairs = in_place_pairs(plan_, n);
      return std::find(pairs.begin(), pairs.end(), std::pair(static_cast<int>(k), static_cast<int>(i))) != pairs.end();
    };
    std::vector<const BufferRef*> written;
    if (s.scratch.bytes) written.push_back(&s.scratch);
    for (std::size_t k = 0; k < s.writes.size(); ++k)
      for (const Part& to : s.writes[k]) {
        for (const BufferRef* other : written)
          if (meet(*other, to.buffer)) object("overlap: '{}' writes '{}' over what it writes elsewhere", n.name, plan_.value(to.buffer.tag.value).name);
        written.push_back(&to.buffer);
        for (std::size_t i = 0; i < s.reads.size(); ++i)
          for (const Part& from : s.reads[i])
            if (meet(to.buffer, from.buffer) && !allowed(k, i, to, from)) object("overlap: '{}' writes '{}' over its input '{}'", n.name, plan_.value(to.buffer.tag.value).name, plan_.value(from.buffer.tag.value).name);
      }
    if (s.scratch.bytes)
      for (const auto& parts : s.reads)
        for (const Part& from : parts)
          if (meet(s.scratch, from.buffer)) object("overlap: the scratch of '{}' lies over its input '{}'", n.name, plan_.value(from.buffer.tag.value).name);
  }

  /// A join reads the parts of all towers that have rows, a device's join those of its pieces, side by side.
  void check_joins(const BoundPlan& bound) {
    for (const auto& stream : bound.streams)
      for (const Step& s : stream) {
        const PlanNode& n = node(s.node);
        bool pre = n.op == kPreAggregate;
        if (!pre && (!is_join(n) || (plan_.maker(n.inputs[0]).scope != Scope::tower && plan_.maker(n.inputs[0]).scope != Scope::device))) continue;
        auto covered = [&](int low, int high) {
          for (const Part& p : s.reads[0])
            if (p.low == low && low < high) low = p.high;
          return low >= std::min(high, plan_.present());
        };
        bool whole = pre ? std::all_of(s.writes[0].begin(), s.writes[0].end(), [&](const Part& p) { return covered(p.low, p.high); }) : covered(0, plan_.present());
        if (!whole) object("dangling: '{}' joins the towers, but lacks the part of one", n.name);
      }
  }

  /// Parts of a sum that lie on GPUs elsewhere, or elsewhere of a GPU, are first brought into its scratch, unless a library sums.
  void check_landed(const BoundPlan& bound) {
    const Instances instances(plan_);
    std::map<std::pair<int, int>, std::int64_t> due;  // node, device
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if ((!is_join(n) && n.op != kPreAggregate) || kernel_of_moves(plan_, n) != n.op) continue;
      const std::vector<std::int64_t> landed = landed_bytes(instances, n);
      for (std::size_t h = 0; h < landed.size(); ++h) due[{static_cast<int>(i), n.holders.get()[h]}] = landed[h];
    }
    if (due.empty()) return;
    for (const auto& stream : bound.streams)
      for (const Step& s : stream)
        if (auto at = due.find({s.node, s.device}); at != due.end() && s.scratch.bytes < at->second)
          object("outside: '{}' brings {} bytes of parts to {}, but has {} bytes of scratch for them", node(s.node).name, at->second, name_of(s.device), s.scratch.bytes);
  }

  /// What moves values reads other memory spaces over links; all else reads its own.
  void check_spaces(const BoundPlan& bound) {
    Apart apart(plan_.cluster);
    const std::string& feeds = plan_.cluster.space(plan_.cluster.host());
    for (const auto& stream : bound.streams)
      for (const Step& s : stream) {
        const PlanNode& n = node(s.node);
        bool moves = moves_values(n);
        const std::string& here = plan_.cluster.space(s.device);
        for (const auto& parts : s.reads)
          for (const Part& p : parts) {
            const std::string& there = p.buffer.space == kFeedSpace ? feeds : bound.spaces[static_cast<std::size_t>(p.buffer.space)];
            if (there == here) continue;
            if (!moves) object("no device: '{}' reads '{}' in the memory space {} without a copy", n.name, plan_.value(p.buffer.tag.value).name, there);
            else if (apart(p.buffer.tag.device, s.device)) object("no link: '{}' reads '{}' from {} to {}", n.name, plan_.value(p.buffer.tag.value).name, there, here);
            else if (plan_.cluster.stage(p.buffer.tag.device, s.device) >= 0 && s.variant->kernel != kNccl)
              object("no peers: '{}' on {} reads '{}' on {}, but the plan's cluster says that these GPUs do not read each other's memory: it goes through the host, by a copy there; derive the plan anew", n.name, name_of(s.device),
                     plan_.value(p.buffer.tag.value).name, name_of(p.buffer.tag.device));
          }
      }
  }

  /// Phases follow from places and roles.
  void check_phases() {
    const Instances instances(plan_);
    const std::vector<std::vector<int>> phases = phases_of(plan_, instances, readers_of(plan_));
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      for (std::size_t c = 0; n.scope == Scope::tower && c < phases.size(); ++c)
        if (n.phases[c] != phases[c][i])
          object("phase: '{}' is in phase {} of tower {}, but roles and devices of what it reads and of its readers put it into {}", n.name, n.phases[c],
                 plan_.classes[c].towers.front(), phases[c][i]);
    }
  }

  /// What is made once is there before a step.
  void check_once(const BoundPlan& bound) {
    if (bound.once.empty()) return;
    Watcher watcher(bound, true);
    for (const Step& s : bound.once) watcher.begin(s);
    found_.insert(found_.end(), watcher.found().begin(), watcher.found().end());
    check_kept(bound, watcher, "while others are");
  }
  void check_kept(const BoundPlan& bound, Watcher& watcher, std::string_view when) {
    for (const BufferRef& kept : bound.kept)
      if (!watcher.holds(kept, kept.tag)) object("overlap: '{}' is made once, and overwritten {}", plan_.value(kept.tag.value).name, when);
  }

  /// One legal order with vector clocks speaks for all orders.
  void check_order(const BoundPlan& bound) {
    std::vector<std::string> stuck;
    auto order = legal_order(bound, &stuck);
    if (!stuck.empty()) return object("stuck: '{}' wait for each other", fmt::join(stuck, "', '"));
    Watcher watcher(bound);
    for (auto [s, k] : order) watcher.begin(bound.streams[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)]);
    found_.insert(found_.end(), watcher.found().begin(), watcher.found().end());
    check_kept(bound, watcher, "in a step");
    if (!found_.empty()) return;
    std::vector<ValueIndex> after(plan_.values.size(), -1);  // of a variable: what takes its bytes
    for (const PlanNode& n : plan_.nodes)
      for (auto [u, variable] : n.donates) after[static_cast<std::size_t>(variable)] = u;
    for (const StateBuffer& s : bound.state) {
      Tag last = s.buffer.tag;
      if (ValueIndex u = after[static_cast<std::size_t>(last.value)]; u >= 0) last.value = u;
      if (!watcher.holds(s.buffer, last)) object("overlap: '{}' is overwritten", plan_.value(s.buffer.tag.value).name);
    }
    for (const auto& stream : bound.streams)  // results are read when the step has ended
      for (const Step& s : stream)
        if (const PlanNode& n = node(s.node); n.op == kFetch && !watcher.holds(s.writes[0][0].buffer, s.writes[0][0].buffer.tag)) object("overlap: the result '{}' is overwritten", n.name);
  }
};

}  // namespace

std::vector<std::string> check_run(const PlacedGraph& plan) { return found_by<RunChecker>(plan); }

}  // namespace belfry
