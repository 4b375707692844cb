#include <algorithm>
#include <map>

#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/plan/small_steps.h>
#include <belfry/graph/plan/verify_parts_internal.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

class DerivedChecker : public PlanChecker {
 public:
  using PlanChecker::PlanChecker;

  void run() {
    for (const PlanNode& n : plan_.nodes)
      if (n.scope == Scope::tower) last_epoch_ = std::max(last_epoch_, n.epoch);
    for (const PlanNode& n : plan_.nodes) {
      check_epoch(n);
      check_role(n);
      check_cause(n);
      check_idle(n);
      check_kernels(n);
      check_owners(n);
      if (n.scope == Scope::tower) check_frame(n);
    }
    check_transient();
    check_frames();
    check_state();
    check_buckets();
    if (const PlanStream* s = stream_out_of_order(plan_)) object("phase: stream '{}' of {} does not run its towers in the order {}", s->name, name_of(s->device), to_string(plan_.placement.order));
  }

 private:
  /// An epoch ends where a tower reads what joins towers. What writes state, and small updates that a gate closes, may wait for the last one.
  void check_epoch(const PlanNode& n) {
    bool tower = n.scope == Scope::tower;
    int epoch = tower ? 0 : -1;
    for (ValueIndex v : values_read(n))
      epoch = std::max(epoch, plan_.maker(v).epoch + (tower && plan_.maker(v).scope != Scope::tower ? 1 : 0));
    if (n.epoch == epoch) return;
    bool writes = !n.donates.empty() || std::any_of(plan_.updates.begin(), plan_.updates.end(), [&](auto p) { return std::find(n.outputs.begin(), n.outputs.end(), p.second) != n.outputs.end(); });
    if (small_.empty()) small_ = small_steps(plan_);
    if (tower || (!writes && small_[static_cast<std::size_t>(&n - plan_.nodes.data())] != Small::update) || n.epoch != last_epoch_) object("phase: '{}' is of epoch {}, but what it reads puts it into {}", n.name, n.epoch, epoch);
  }

  /// A node has the role of the user's; what is inserted that of what it moves; a store writes state.
  void check_role(const PlanNode& n) {
    bool moves = n.inserted && !n.def;
    Role role = n.op == kStore ? Role::update : n.again ? Role::backward : moves ? plan_.maker(n.inputs[0]).role : plan_.graph->node(n.user).role;
    if (n.role != role) object("phase: '{}' is said to be {}, but is {}", n.name, to_string(n.role), to_string(role));
  }

  /// What moves a value is there for who makes it, or for the variable that it writes; sums of some towers for the join that reads them.
  void check_cause(const PlanNode& n) {
    if (is_join(n) || n.op == kPreAggregate)
      if (const PlanNode& sum = plan_.maker(n.inputs[0]); sum.op == kPreAggregate) expect_cause(sum, n.user);
    if (n.inserted && (n.op == kCopy || n.op == kStore || n.op == kAllGather)) expect_cause(n, plan_.maker(n.donates.empty() ? n.inputs[0] : n.donates[0].second).user);
  }
  void expect_cause(const PlanNode& n, NodeId cause) {
    if (n.user != cause) object("no cause: '{}' is said to be there for '{}', but is for '{}'", n.name, plan_.graph->node(n.user).name, plan_.graph->node(cause).name);
  }

  /// Where a node does not run it has neither a kernel nor bytes.
  void check_idle(const PlanNode& n) {
    auto says = [](const Variant& v) { return !v.kernel.empty() || v.scratch_bytes || v.scratch != Slot{} || !v.outputs.empty(); };
    if (n.scope == Scope::tower) {
      for (std::size_t c = 0; c < n.by_class.size(); ++c)
        if (n.phases[c] < 0 && says(n.by_class[c])) object("no device: '{}' has a kernel or bytes for towers that do not run it, as tower {}", n.name, plan_.classes[c].towers.front());
      return;
    }
    const std::vector<int>& on = n.holders;
    for (std::size_t g = 0; g < std::min(n.by_group.size(), plan_.groups.size()); ++g)
      if (const std::vector<int>& devices = plan_.groups[g].devices; says(n.by_group[g]) && !devices.empty() && std::none_of(devices.begin(), devices.end(), [&](int d) { return std::find(on.begin(), on.end(), d) != on.end(); }))
        object("no device: '{}' has a kernel or bytes on {}, where it is not", n.name, name_of(devices.front()));
  }

  /// What moves values has one kernel, of its own name, or the library's that the placement asks for.
  void check_kernels(const PlanNode& n) {
    if (n.scope == Scope::state) return;
    if (n.op != kInput && (n.def || n.op == kFused)) {  // its kernel may have any name but that by which collectives are known
      for (const Variants* variants : {&n.by_class, &n.by_group})
        for (std::size_t k = 0; k < variants->size(); ++k)
          if ((*variants)[k].kernel == kNccl) object("no kernel: '{}' names '{}', which is of sums and gathers over GPUs, and it is {}", n.name, kNccl, n.op);
      return;
    }
    const std::string name = n.op == kInput ? "feed" : kernel_of_moves(plan_, n);
    for (std::size_t c = 0; c < n.by_class.size(); ++c)
      if (c < n.phases.size() && n.phases[c] >= 0 && n.by_class[c].kernel != name) object("no kernel: '{}' names '{}', but {} has none of that name", n.name, n.by_class[c].kernel, n.op);
    if (n.scope == Scope::tower) return;
    for (std::size_t g = 0; g < n.by_group.size(); ++g)
      if (!n.by_group[g].kernel.empty() && n.by_group[g].kernel != name) object("no kernel: '{}' names '{}', but {} has none of that name", n.name, n.by_group[g].kernel, n.op);
  }

  /// Joins speak of the devices of those whose parts they join.
  void check_owners(const PlanNode& n) {
    if (!is_join(n) && n.op != kPreAggregate) return;
    const PlanNode& m = plan_.maker(n.inputs[0]);
    int want = m.scope == Scope::tower ? m.vector : m.scope == Scope::device ? m.owners : -1;
    auto owners = [&](int vector) { return vector < 0 ? std::vector<int>() : plan_.vectors[static_cast<std::size_t>(vector)]; };
    bool alike = owners(n.owners) == owners(want);
    if (!alike && want >= 0 && n.op == kPreAggregate) alike = owners(n.owners) == host_adders(plan_.cluster, owners(want));
    if (!alike && want >= 0 && n.op == kPreAggregate)  // what a sum by groups has before it
      for (const PlanNode& r : plan_.nodes)
        alike |= r.sum == SumWay::groups && is_op(r, kAggregate) && r.inputs.size() == 1 && r.inputs[0] >= 0 && (r.inputs == n.outputs || plan_.maker(r.inputs[0]).inputs == n.outputs) && owners(n.owners) == group_leaders(plan_.cluster, owners(want), r.holders);
    if (!alike) object("no device: '{}' joins what '{}' has, but names other owners", n.name, m.name);
  }

  /// Sums of a bucket are alike, and nothing comes between them on their devices.
  void check_buckets() {
    std::map<std::pair<int, std::string>, std::vector<const PlanNode*>> buckets;
    std::vector<const PlanNode*> all;
    for (const PlanNode& n : plan_.nodes) {
      if (n.scope != Scope::tower && n.scope != Scope::state) all.push_back(&n);
      if (!n.bucket && n.sum == SumWay::direct) continue;
      if (n.op != kAggregate && (n.op != kAllGather || n.sum != SumWay::direct || plan_.maker(n.inputs[0]).bucket != n.bucket)) object("bucket: '{}' is no sum, but is said to be added with others, or in a way", n.name);
      if (n.sum == SumWay::ring && !n.ranged) object("ranges: '{}' is added round a ring, but not in ranges", n.name);
      if (n.bucket) buckets[{n.bucket, n.op}].push_back(&n);
    }
    if (buckets.empty()) return;
    auto before = [](const PlanNode* a, const PlanNode* b) { return a->order < b->order; };
    std::sort(all.begin(), all.end(), before);
    for (auto& [key, nodes] : buckets) {
      std::sort(nodes.begin(), nodes.end(), before);
      const PlanNode& first = *nodes.front();
      for (const PlanNode* n : nodes)
        if (n->holders != first.holders || n->ranged != first.ranged || n->sum != first.sum || n->epoch != first.epoch) object("bucket: '{}' and '{}' are in bucket {}, but are not added alike", first.name, n->name, key.first);
      for (auto at = std::lower_bound(all.begin(), all.end(), &first, before); at != all.end() && (*at)->order < nodes.back()->order; ++at) {
        const bool here = std::any_of((*at)->holders.begin(), (*at)->holders.end(), [&](int d) { return std::count(first.holders.begin(), first.holders.end(), d) > 0; });
        if (here && ((*at)->bucket != key.first || (*at)->op != key.second)) object("bucket: '{}' comes between the sums of bucket {}", (*at)->name, key.first);
      }
    }
  }

  /// A tower's buffers lie inside the frame of its class.
  void check_frame(const PlanNode& n) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      const TowerClass& cls = plan_.classes[c];
      int local = cls.pattern[static_cast<std::size_t>(n.vector)].device;
      if (local < 0) continue;
      if (local >= static_cast<int>(cls.frame.size())) return object("memory: a class has {} frames, but '{}' runs on its device {}", cls.frame.size(), n.name, local);
      const FrameSize& frame = cls.frame[static_cast<std::size_t>(local)];
      auto check = [&](const Slot& s, std::int64_t bytes) {
        std::int64_t size = s.region == Slot::kKept ? frame.kept + frame.tail : s.region == Slot::kTransient ? frame.transient : -1;
        if (s.region == Slot::kKept && !s.more.empty() && static_cast<int>(s.more.size()) + 1 != slots_of(c, local)) object("outside: '{}' has {} places for {} slots", n.name, s.more.size() + 1, slots_of(c, local));
        auto leaves = [&](std::int64_t at) { return at < 0 || at + bytes > size; };
        const bool some = leaves(s.offset) || std::any_of(s.more.begin(), s.more.end(), leaves) || (s.stride && s.more.empty() && s.region == Slot::kKept && leaves(s.at(static_cast<std::size_t>(slots_of(c, local) - 1)).value_or(-1)));
        if (size >= 0 && some) object("outside: '{}' leaves the frame of its class", n.name);
        if (s.region == Slot::kTransient) past_[{c, local}] = std::max(past_[{c, local}], s.offset + aligned_bytes(bytes));
      };
      const Variant& v = n.by_class[c];
      Share share = plan_.share(cls.towers.front());
      for (std::size_t k = 0; k < std::min(v.outputs.size(), n.outputs.size()); ++k) check(v.outputs[k], local_type(plan_.value(n.outputs[k]), share).bytes());
      if (v.scratch_bytes) check(v.scratch, v.scratch_bytes);
    }
  }

  /// Of the streams that run towers of a class on one of its devices, the most.
  int slots_of(std::size_t c, int local) {
    if (slots_on_.empty()) {
      slots_on_.resize(plan_.cluster.devices.size());
      for (const PlanStream& s : plan_.streams)
        if (s.name != "main") slots_on_[static_cast<std::size_t>(s.device)] = std::max(slots_on_[static_cast<std::size_t>(s.device)], s.slots);
    }
    const TowerClass& cls = plan_.classes[c];
    const auto x = static_cast<std::size_t>(std::find_if(cls.pattern.begin(), cls.pattern.end(), [&](const LocalPlace& p) { return p.device == local; }) - cls.pattern.begin());
    int out = 1;
    for (int t : cls.towers) out = std::max(out, slots_on_[static_cast<std::size_t>(plan_.vectors[x][static_cast<std::size_t>(t)])]);
    return out;
  }

  /// A transient part is as long as what lies in it. Kept parts lie as far apart as the largest of a stream wants, so they may be longer.
  void check_transient() {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c)
      for (std::size_t local = 0; local < plan_.classes[c].frame.size(); ++local) {
        auto past = past_.find({c, static_cast<int>(local)});
        if (std::int64_t bytes = plan_.classes[c].frame[local].transient, end = past == past_.end() ? 0 : past->second; bytes > end)
          object("memory: the transient frame of tower {} has {} bytes, but what lies in it takes {}", plan_.classes[c].towers.front(), bytes, end);
      }
  }

  /// A device's frame is the largest of the classes that use it.
  void check_frames() {
    std::vector<FrameSize> largest(plan_.frames.size());
    for (const TowerClass& c : plan_.classes)
      for (int t : c.towers)
        for (std::size_t x = 0; x < plan_.vectors.size(); ++x) {
          int local = c.pattern[x].device;
          if (local < 0 || local >= static_cast<int>(c.frame.size())) continue;
          FrameSize& f = largest[static_cast<std::size_t>(plan_.vectors[x][static_cast<std::size_t>(t)])];
          f.kept = std::max(f.kept, c.frame[static_cast<std::size_t>(local)].kept);
          f.transient = std::max(f.transient, c.frame[static_cast<std::size_t>(local)].transient);
          f.tail = std::max(f.tail, c.frame[static_cast<std::size_t>(local)].tail);
        }
    for (std::size_t d = 0; d < largest.size(); ++d)
      if (largest[d] != plan_.frames[d]) object("memory: the frame of {} is not the largest of its classes", name_of(static_cast<int>(d)));
  }

  /// A group's state is what the variables of its devices take, up to the last of them.
  void check_state() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      std::int64_t end = 0;
      for (const PlanNode& n : plan_.nodes)
        if (n.scope == Scope::state && g < n.by_group.size())
          for (std::size_t k = 0; k < std::min(n.by_group[g].outputs.size(), n.outputs.size()); ++k)
            if (const Slot& s = n.by_group[g].outputs[k]; s.region == Slot::kState) end = std::max(end, s.offset + aligned_bytes(type_on(plan_, n, n.outputs[k], n.holders.front()).bytes()));
      if (end != plan_.groups[g].state && !plan_.groups[g].devices.empty()) object("memory: the variables of {} take {} bytes, but its state has {}", name_of(plan_.groups[g].devices.front()), end, plan_.groups[g].state);
    }
  }

  std::vector<Small> small_;                                  // found when they are first asked for
  int last_epoch_ = -1;                                       // of the towers
  std::vector<int> slots_on_;                                 // per device
  std::map<std::pair<std::size_t, int>, std::int64_t> past_;  // by class and local device: where the last transient buffer ends
};

}  // namespace

std::vector<std::string> check_derived(const PlacedGraph& plan) { return found_by<DerivedChecker>(plan); }

}  // namespace belfry
