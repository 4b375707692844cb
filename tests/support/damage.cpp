#include "damage.h"

#include <algorithm>

#include "damage_tools.h"

namespace belfry::test {

namespace {

std::vector<Damage> nodes_and_values() {
  return {
      {"no kernel", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].kernel.clear(); }), "no kernel"},
      {"a collective of what computes", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].kernel = "nccl"; }), "no kernel: '"},
      {"a collective of what updates", "towers", at(op("momentum"), [](PlanNode& n) { for (Variant& v : n.by_group) v.kernel = "nccl"; }), "no kernel: '"},
      {"no kernel of an update", "towers", at(op("momentum"), [](PlanNode& n) { for (Variant& v : n.by_group) v.kernel.clear(); }), "no kernel"},
      {"a place for no value", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].outputs.push_back(n.by_class[0].outputs.at(0)); }), "outside"},
      {"variants lost", "towers", at(op("relu"), [](PlanNode& n) { n.by_class.clear(); }), "no kernel"},
      {"an op that is not known", "towers", at(op("relu"), [](PlanNode& n) { n.def = nullptr, n.op = "relo"; }), "no kernel"},
      {"no reason", "towers", at(op("relu"), [](PlanNode& n) { n.reason.clear(); }), "no reason"},
      {"no cause", "towers", at(op(kCopy), [](PlanNode& n) { n.user = -1; }), "no cause"},
      {"no order", "towers", at(op("relu"), [](PlanNode& n) { n.order = -1; }), "no order"},
      {"order taken twice", "towers", [](PlacedGraph& p) { auto r = all(p, [](const PlanNode& n) { return n.scope == Scope::tower; }); r.at(1)->order = r.at(0)->order; }, "no order"},
      {"unknown device", "towers", [](PlacedGraph& p) { move_to(p, first(p, op("relu")), {9, 9, 9, 9}); }, "no device"},
      {"idle towers that have rows", "towers", at(op("relu"), [](PlanNode& n) { n.idle = {0}; }), "no device"},
      {"unknown vector", "towers", at(op("relu"), [](PlanNode& n) { n.vector = 99; }), "no device"},
      {"short vector", "towers", [](PlacedGraph& p) { p.vectors.at(0).pop_back(); }, "no device"},
      {"no holder", "towers", at(op("momentum"), [](PlanNode& n) { n.holders = DeviceList{}; }), "no device"},
      {"unknown holder", "towers", at(op("momentum"), [](PlanNode& n) { n.holders = DeviceList{17}; }), "no device"},
      {"holder named twice", "mirrored", at(op("momentum"), [](PlanNode& n) { n.holders = DeviceList{0, 0}; }), "state|unbound|no device"},
      {"an input of another type", "towers", [](PlacedGraph& p) { first(p, op("relu")).inputs.at(0) = first(p, op(kVariable)).outputs.at(0); }, "type|split"},
      {"an input in another state", "towers", at(op("momentum"), [](PlanNode& n) { std::swap(n.inputs.at(0), n.inputs.at(3)); }), "type|split"},
      {"a value of another state", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op("relu")).outputs.at(0))].state = kReplicated; }, "split"},
      {"a value of another shape", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op("relu")).outputs.at(0))].type.shape.push_back(2); }, "type"},
      {"a join that adds what stands side by side", "towers", at([](const PlanNode& n) { return is_join(n) && n.attributes.text("how") == "concat_rows"; }, [](PlanNode& n) { n.attributes.set("how", "sum"); }), "split"},
      {"dangling input", "towers", at(op("relu"), [](PlanNode& n) { n.inputs = {9999}; }), "dangling"},
      {"negative input", "towers", at(op("relu"), [](PlanNode& n) { n.inputs = {-7}; }), "dangling"},
      {"an input left out that must be there", "towers", at(op("relu"), [](PlanNode& n) { n.inputs = {-1}; }), "dangling"},
      {"an input too few", "towers", at(op("momentum"), [](PlanNode& n) { n.inputs.pop_back(); }), "dangling"},
      {"an output too few", "towers", at(op("momentum"), [](PlanNode& n) { n.outputs.pop_back(); }), "dangling"},
      {"a copy of two values", "towers", at(op(kCopy), [](PlanNode& n) { n.inputs.push_back(n.inputs.at(0)); }), "dangling"},
      {"a copy of nothing", "towers", at(op(kCopy), [](PlanNode& n) { n.inputs.clear(); }), "dangling"},
      {"two makers", "towers", [](PlacedGraph& p) { first(p, op("relu")).outputs.at(0) = first(p, op(kInput)).outputs.at(0); }, "made twice"},
      {"output that is no value", "towers", at(op("relu"), [](PlanNode& n) { n.outputs = {12345}; }), "dangling"},
      {"value that names another maker", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op("relu")).outputs.at(0))].maker = 0; }, "made twice"},
      {"value that nobody made", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op("relu")).outputs.at(0))].maker = 1 << 20; }, "made twice"},
      {"lost fetch", "towers", [](PlacedGraph& p) { p.fetches.at(0).second = 7777; }, "dangling"},
      {"fetch of a tower's value", "towers", [](PlacedGraph& p) { p.fetches.at(0).second = first(p, op("relu")).outputs.at(0); }, "dangling"},
      {"a join without a way to join", "towers", at(op(kAggregate), [](PlanNode& n) { n.attributes.set("how", "median"); }), "dangling"},
      {"a join along an axis that is not there", "towers",
       at([](const PlanNode& n) { return is_join(n) && n.attributes.find("axis"); }, [](PlanNode& n) { n.attributes.set("axis", 7); }), "dangling"},
      {"pieces without owners", "pieces", at(op(kPreAggregate), [](PlanNode& n) { n.owners = -1; }), "no device"},
      {"pieces of other owners", "pieces", [](PlacedGraph& p) { p.vectors.push_back({0, 0, 0, 0}); for (TowerClass& c : p.classes) c.pattern.push_back(c.pattern.at(0)); first(p, op(kPreAggregate)).owners = static_cast<int>(p.vectors.size()) - 1; },
       "no device|unbound|dangling"},
      {"a tower's part lost", "towers", [](PlacedGraph& p) {
         PlanNode& a = first(p, [&](const PlanNode& n) { return is_join(n) && p.maker(n.inputs.at(0)).scope == Scope::tower; });
         PlanNode& m = p.nodes[static_cast<std::size_t>(p.value(a.inputs.at(0)).maker)];
         std::vector<int> v = p.devices(m);
         v.at(1) = -1;
         move_to(p, m, v);
       }, "dangling|unbound|phase|no device"},
      {"scope of a join given to a node", "towers", at(op("momentum"), [](PlanNode& n) { n.scope = Scope::device; }), "no device"},
  };
}

std::vector<Damage> moves_and_state() {
  return {
      {"copy lost", "towers", [](PlacedGraph& p) { p.nodes.erase(p.nodes.begin() + (&first(p, op(kCopy)) - p.nodes.data())); reindex(p); }, "unbound"},
      {"copy twice", "towers", [](PlacedGraph& p) {
         PlanNode c = first(p, op(kCopy));
         p.values.push_back(p.value(c.outputs.at(0)));
         c.name += "2", c.order = 9999, c.outputs = {static_cast<int>(p.values.size()) - 1};
         p.values.back().name += "2";
         p.nodes.push_back(c);
         reindex(p);
       }, "two copies"},
      {"needless copy", "towers", at(op(kCopy), [](PlanNode& n) {
         auto some = std::find_if(n.by_group.begin(), n.by_group.end(), [](const Variant& x) { return !x.kernel.empty(); });
         if (some == n.by_group.end()) throw InternalError("a copy of a tower's value");
         const Variant like = *some;
         n.holders = DeviceList{2}, n.by_group.resize(std::max<std::size_t>(n.by_group.size(), 3), like);
         for (Variant& v : n.by_group.whole()) v = like;
       }), "needless copy"},
      {"no link", "towers", [](PlacedGraph& p) { p.cluster.unlinked = {{"sim:0", "host"}}; }, "no link"},
      {"read in another memory space", "layers", [](PlacedGraph& p) {
         PlanNode& n = first(p, [&](const PlanNode& x) { return x.op == "relu"; });
         std::vector<int> v = p.devices(n);
         for (int& d : v) d = 1 - d;
         move_to(p, n, v);
       }, "unbound|missing wait|phase|no device"},
      {"shared node moved without deriving", "towers", at(op("momentum"), [](PlanNode& n) { n.holders = DeviceList{0}; }), "state|unbound|no kernel"},
      {"two writers", "towers", [](PlacedGraph& p) { auto m = all(p, op("momentum")); m.at(1)->donates.at(0).second = m.at(0)->donates.at(0).second; }, "state"},
      {"update lost", "towers", at(op("momentum"), [](PlanNode& n) { n.donates.clear(); }), "state"},
      {"donated to what is no variable", "towers", [](PlacedGraph& p) { first(p, op("momentum")).donates.at(0).second = first(p, op("relu")).outputs.at(0); }, "state"},
      {"donates what it does not make", "towers", [](PlacedGraph& p) { auto m = all(p, op("momentum")); m.at(0)->donates.at(0).first = m.at(1)->outputs.at(0); }, "state"},
      {"donates what is not there", "towers", at(op("momentum"), [](PlanNode& n) { n.donates.at(0).first = -3; }), "dangling"},
      {"update of what is not there", "towers", [](PlacedGraph& p) { p.updates.at(0).first = 4321; }, "dangling"},
      {"variable on one of two holders", "mirrored", at([](const PlanNode& n) { return n.scope == Scope::state; }, [](PlanNode& n) { n.holders = DeviceList{1}; }), "state"},
  };
}

std::vector<Damage> schedule() {
  return {
      {"stream of another device", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").device = 1; }, "stream of another device"},
      {"stream of no device", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").device = 55; }, "stream of another device"},
      {"stream lost", "towers", [](PlacedGraph& p) { std::erase_if(p.streams, [](const PlanStream& s) { return s.device == 1 && s.name != "main"; }); }, "phase"},
      {"main stream lost", "towers", [](PlacedGraph& p) { std::erase_if(p.streams, [](const PlanStream& s) { return s.device == 1 && s.name == "main"; }); }, "phase"},
      {"two main streams", "towers", [](PlacedGraph& p) { p.streams.push_back(stream(p, 1, "main")); }, "phase"},
      {"no streams at all", "towers", [](PlacedGraph& p) { p.streams.clear(); }, "phase"},
      {"thread that is not there", "towers", [](PlacedGraph& p) { p.streams.at(0).thread = -1; }, "thread"},
      {"threads beyond counting", "towers", [](PlacedGraph& p) { p.streams.at(0).thread = 1 << 30; }, "thread"},
      {"phase lost", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries.pop_back(); }, "phase"},
      {"phase twice", "towers", [](PlacedGraph& p) { auto& e = stream(p, 0, "tower0").entries; e.push_back(e.back()); }, "phase"},
      {"entry of a tower that is not there", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].tower = 44; }, "stream of another device|phase"},
      {"entry of a negative tower", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].tower = -2; }, "stream of another device|phase"},
      {"entry of an epoch that is not there", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].epoch = 12; }, "stream of another device|phase"},
      {"entry after a tower that is not there", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].after = 77; }, "phase"},
      {"backward before forward", "towers", [](PlacedGraph& p) { auto& e = stream(p, 0, "tower0").entries; std::swap(e.at(0), e.at(1)); }, "overlap|stuck|missing wait"},
      {"slot past the frame", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].slot = 99; }, "outside"},
      {"negative slot", "towers", [](PlacedGraph& p) { stream(p, 0, "tower0").entries[0].slot = -1; }, "outside"},
      {"one slot for two in flight", "gpipe", [](PlacedGraph& p) { for (StreamEntry& e : stream(p, 0, "tower0").entries) e.slot = 0; }, "overlap|missing wait"},
      {"slot taken early", "forward only", [](PlacedGraph& p) { for (PlanStream& s : p.streams) for (StreamEntry& e : s.entries) e.after = -1; }, "missing wait"},
      {"class without pattern", "towers", [](PlacedGraph& p) { p.classes.at(0).pattern.clear(); }, "no device"},
      {"pattern of another class", "layers", [](PlacedGraph& p) { for (LocalPlace& l : p.classes.at(0).pattern) l.device = 0; }, "no device"},
      {"tower in no class", "towers", [](PlacedGraph& p) { p.classes.at(0).towers.erase(p.classes.at(0).towers.begin()); }, "phase"},
      {"tower in two classes", "towers", [](PlacedGraph& p) { p.classes.at(1).towers.push_back(p.classes.at(0).towers[0]); }, "phase"},
      {"a class of a tower that is not there", "towers", [](PlacedGraph& p) { p.classes.at(0).towers.push_back(31); }, "phase"},
      {"phases lost", "towers", at(op("relu"), [](PlanNode& n) { n.phases.clear(); }), "phase"},
      {"no phase where the tower runs", "towers", at(op("relu"), [](PlanNode& n) { n.phases.at(0) = -1; }), "phase|no kernel"},
      {"no towers", "towers", [](PlacedGraph& p) { p.towers = 0; }, "phase"},
      {"no rows", "towers", [](PlacedGraph& p) { p.batch = 0; }, "phase"},
      {"update before its readers", "towers", [](PlacedGraph& p) {
         for (PlanNode& n : p.nodes)
           if (n.scope != Scope::tower) ++n.order;
         first(p, op("momentum")).order = 0;
       }, "missing wait|stuck|overlap|unbound: '"},
      {"main stream reversed", "towers", [](PlacedGraph& p) { for (PlanNode& n : p.nodes) if (n.scope != Scope::tower) n.order = 5000 - n.order; }, "unbound: '"},
      {"wait on a shared value lost", "towers", [](PlacedGraph& p) { for (PlanNode& n : p.nodes) if (n.scope == Scope::tower) without(Wait::kShared)(n); }, "missing wait|overlap"},
      {"wait on towers lost", "towers", [](PlacedGraph& p) { for (PlanNode& n : p.nodes) without(Wait::kTowers)(n); }, "missing wait|overlap"},
      {"wait on a device's towers lost", "pieces", at(waiting(Wait::kLocal), without(Wait::kLocal)), "missing wait|overlap"},
      {"wait on pieces lost", "pieces", at(waiting(Wait::kEvery), without(Wait::kEvery)), "missing wait|overlap"},
      {"wait on another stage lost", "layers", at(waiting(Wait::kOwn), without(Wait::kOwn)), "missing wait|overlap"},
      {"wait of a donated buffer lost", "late reader", [](PlacedGraph& p) { for (PlanNode& n : p.nodes) without(Wait::kReaders)(n); }, "missing wait"},
      {"wait on a value that is not there", "towers", at(op("relu"), [](PlanNode& n) { n.waits.push_back({Wait::kOwn, 99999}); }), "unbound"},
      {"wait on no value", "towers", at(op("relu"), [](PlanNode& n) { n.waits.push_back({Wait::kShared, -1}); }), "unbound"},
      {"wait of a relation that does not fit", "towers", [](PlacedGraph& p) { first(p, op("momentum")).waits.push_back({Wait::kOwn, first(p, op("relu")).outputs.at(0)}); }, "unbound"},
      {"wait for all that hold a tower's value", "towers", at(op("relu"), [](PlanNode& n) { n.waits.push_back({Wait::kEvery, n.inputs.at(0)}); }), "unbound"},
      {"wait for the readers of a tower's value", "towers", at(op("relu"), [](PlanNode& n) { n.waits.push_back({Wait::kReaders, n.inputs.at(0)}); }), "unbound"},
      {"wait for what comes no earlier in its stream", "towers", at(op("relu"), [](PlanNode& n) { n.waits.push_back({Wait::kOwn, n.outputs.at(0)}); }), "unbound"},
      {"waits in a ring", "towers", [](PlacedGraph& p) { first(p, op("relu")).waits.push_back({Wait::kEvery, first(p, op("momentum")).outputs.at(0)}); }, "stuck"},
  };
}

std::vector<Damage> memory() {
  return {
      {"memory", "towers", [](PlacedGraph& p) { for (ClusterDevice& d : p.cluster.devices) d.memory = 1000; }, "memory"},
      {"frames too small", "towers", [](PlacedGraph& p) { for (FrameSize& f : p.frames) f.transient /= 256, f.transient *= 64, f.kept /= 256, f.kept *= 64; }, "memory|outside|overlap|alignment"},
      {"frames lost", "towers", [](PlacedGraph& p) { p.frames.pop_back(); }, "memory"},
      {"negative frame", "towers", [](PlacedGraph& p) { p.frames.at(0).kept = -64; }, "memory"},
      {"group without one of its devices", "towers", [](PlacedGraph& p) { p.groups.at(0).devices.erase(p.groups.at(0).devices.begin()); }, "unbound"},
      {"device in two groups", "towers", [](PlacedGraph& p) { p.groups.at(1).devices.push_back(p.groups.at(0).devices.at(0)); }, "unbound"},
      {"group of a device that is not there", "towers", [](PlacedGraph& p) { p.groups.at(0).devices.push_back(64); }, "unbound"},
      {"region too small", "towers", [](PlacedGraph& p) { for (DeviceGroup& g : p.groups) g.region /= 128, g.region *= 64; }, "outside|overlap"},
      {"state too small", "towers", [](PlacedGraph& p) { for (DeviceGroup& g : p.groups) g.state = 0; }, "outside|overlap|missing wait"},
      {"arena beyond counting", "towers", [](PlacedGraph& p) { p.groups.at(0).region = std::int64_t{1} << 62; }, "memory"},
      {"two variables at one offset", "towers", [](PlacedGraph& p) { state_slot(p, 1, 2).offset = state_slot(p, 0, 2).offset; }, "overlap|missing wait"},
      {"two kept values at one offset", "towers", [](PlacedGraph& p) {
         auto k = all(p, [](const PlanNode& n) { return n.scope == Scope::tower && lies_in(n, Slot::kKept); });
         for (PlanNode* n : k) n->by_class[0].outputs.at(0).offset = k.at(0)->by_class[0].outputs.at(0).offset;
       }, "overlap|missing wait|outside"},
      {"transient value over another", "gpipe", [](PlacedGraph& p) { for (PlanNode& n : p.nodes) for (Variant& v : n.by_class) for (Slot& s : v.outputs) if (s.region == Slot::kTransient) s.offset = 0; },
       "overlap|missing wait"},
      {"scratch over a live value", "towers", [](PlacedGraph& p) {
         PlanNode& n = first(p, [&](const PlanNode& x) { return in_frame(x) && x.op != kCopy; });
         for (Variant& v : n.by_class) v.scratch_bytes = 64, v.scratch = v.outputs.at(0);
       }, "overlap|missing wait"},
      {"output over an input", "towers", [](PlacedGraph& p) {
         PlanNode& n = first(p, [&](const PlanNode& x) { return x.op == "matmul" && in_frame(x) && x.inputs.at(0) >= 0 && in_frame(p.maker(x.inputs.at(0))); });
         for (std::size_t c = 0; c < n.by_class.size(); ++c) n.by_class[c].outputs.at(0) = p.maker(n.inputs.at(0)).by_class[c].outputs.at(0);
       }, "overlap"},
      {"scratch without a place", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].scratch_bytes = 64; }), "unbound"},
      {"negative scratch", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].scratch_bytes = -64; }), "outside"},
      {"scratch past the arena", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].scratch_bytes = 1 << 20, n.by_class[0].scratch = {Slot::kTransient, 0, 0}; }), "outside|overlap|missing wait"},
      {"offset outside", "towers", [](PlacedGraph& p) { state_slot(p, 0, 2).offset = 1 << 30; }, "outside"},
      {"negative offset", "towers", [](PlacedGraph& p) { state_slot(p, 0, 2).offset = -64; }, "outside"},
      {"offset that overflows", "towers", [](PlacedGraph& p) { state_slot(p, 0, 2).offset = std::int64_t{0x7fffffffffffffc0}; }, "outside"},
      {"offset not aligned", "towers", [](PlacedGraph& p) { state_slot(p, 0, 2).offset = 4; }, "alignment"},
      {"offset lost", "towers", [](PlacedGraph& p) { first(p, in_frame).by_class[0].outputs.clear(); }, "unbound"},
      {"towers' partials on each other", "many pieces", [](PlacedGraph& p) {
         for (PlanNode& n : p.nodes)
           if (n.scope == Scope::tower)
             for (Variant& v : n.by_group)
               for (Slot& s : v.outputs) s.stride = 0;
       }, "overlap|missing wait"},
      {"a variable outside the state", "towers", [](PlacedGraph& p) { state_slot(p, 0, 2).region = Slot::kRegion; }, "state"},
      {"a value in the state", "towers", [](PlacedGraph& p) { for (Variant& v : first(p, op(kAggregate)).by_group) for (Slot& s : v.outputs) s.region = Slot::kState; }, "state"},
      {"a value in the user's feed", "towers", at(op("relu"), [](PlanNode& n) { n.by_class[0].outputs.at(0).region = Slot::kFeed; }), "outside"},
      {"an input without a feed", "towers", at(op(kInput), [](PlanNode& n) { for (Variant& v : n.by_group) for (Slot& s : v.outputs) s = {Slot::kRegion, 0, 0}; }), "outside"},
  };
}

/// Plans that run, but compute something else than their graph, or cross what is not there.
std::vector<Damage> meaning() {
  auto joins = [](const char* how) { return [how](const PlanNode& n) { return is_join(n) && n.attributes.text("how") == how; }; };
  auto behind_pre = [joins](PlacedGraph& p, const char* how) -> PlanNode& { return first(p, [&](const PlanNode& n) { return joins(how)(n) && p.maker(n.inputs.at(0)).op == kPreAggregate; }); };
  auto partials = [](const PlanNode& n) { return n.inserted && n.def; };
  return {
      {"a result that is not computed", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(p.fetches.at(0).second)].read = false; }, "dangling"},
      {"a value that is read, but not computed", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op("relu")).inputs.at(0))].read = false; }, "dangling"},
      {"a result overwritten before the end", "towers", [](PlacedGraph& p) {
         PlanNode& f = first(p, op(kFetch));
         PlanNode& later = first(p, [&](const PlanNode& n) { return n.op == kAggregate && n.holders == f.holders && n.order > f.order; });
         for (std::size_t g = 0; g < p.groups.size(); ++g)
           if (!f.by_group[g].outputs.empty()) f.by_group[g].outputs.at(0) = later.by_group[g].outputs.at(0);
       }, "overlap: the result"},
      {"a mean where the towers' gradients are added", "pieces", [=](PlacedGraph& p) { behind_pre(p, "sum").attributes.set("how", "mean"); }, "split"},
      {"a sum where the towers' statistics are averaged", "batch norm", [=](PlacedGraph& p) { behind_pre(p, "mean").attributes.set("how", "sum"); }, "split"},
      {"a variable left without its update", "towers", [](PlacedGraph& p) { first(p, op("momentum")).donates.at(0) = first(p, op("momentum")).donates.back(), first(p, op("momentum")).donates.pop_back(), p.updates.erase(p.updates.begin()); }, "state"},
      {"updates exchanged", "towers", [](PlacedGraph& p) { std::swap(p.updates.at(0).second, p.updates.at(1).second); }, "state"},
      {"variables' bytes exchanged", "fused", [](PlacedGraph& p) { auto m = all(p, op("momentum")); std::swap(m.at(0)->donates.at(0).second, m.at(1)->donates.at(0).second); }, "state"},
      {"stores exchanged", "exchange", [](PlacedGraph& p) {
         auto stores = all(p, [](const PlanNode& n) { return n.op == kStore && !n.donates.empty(); });
         std::swap(stores.at(0)->donates.at(0).second, stores.at(1)->donates.at(0).second);
       }, "state"},
      {"an input exchanged for another like it", "fused", [](PlacedGraph& p) { auto m = all(p, op("momentum")); std::swap(m.at(0)->inputs.at(0), m.at(1)->inputs.at(0)); }, "dangling"},
      {"a group that reads another variable", "fused", [](PlacedGraph& p) { auto f = all(p, op(kFused)); std::swap(f.at(0)->inputs.at(1), f.at(1)->inputs.at(1)); }, "dangling"},
      {"a group of other members", "fused", [](PlacedGraph& p) { auto f = all(p, op(kFused)); f.at(0)->members = f.at(1)->members; }, "dangling|type"},
      {"a group without members", "fused", at(op(kFused), [](PlanNode& n) { n.members.clear(); }), "type"},
      {"a group of no kind", "fused", at(op(kFused), [](PlanNode& n) { n.attributes = {}; }), "dangling"},
      {"a group in another state", "fused", [](PlacedGraph& p) {
         PlanNode& f = first(p, op(kFused));
         p.values[static_cast<std::size_t>(f.outputs.at(0))].state = kPerTower;
       }, "split: 'relu' gives"},
      {"a cut sum that adds a value twice", "tied", at(partials, [](PlanNode& n) { n.inputs.at(1) = n.inputs.at(0); }), "dangling"},
      {"a mean over the towers of another value", "batch norm", [=](PlacedGraph& p) {
         std::vector<PlanNode*> pre;
         for (PlanNode* n : all(p, joins("mean"))) pre.push_back(&p.nodes[static_cast<std::size_t>(p.value(n->inputs.at(0)).maker)]);
         std::swap(pre.at(0)->inputs.at(0), pre.at(1)->inputs.at(0));
       }, "dangling"},
      {"other attributes than the graph's", "towers", at([](const PlanNode& n) { return n.op == "momentum"; }, [](PlanNode& n) { n.attributes = {}; n.attributes.set("nesterov", true); }), "dangling|type"},
      {"a split along an axis without rows", "towers", [](PlacedGraph& p) { p.values[static_cast<std::size_t>(first(p, op(kSplit)).outputs.at(0))].state = rows(1); }, "split: 'image.split0' f64(batch, 6, 6, 2) is rows(1)"},
      {"a join over a link that is not there", "mirrored", [](PlacedGraph& p) { p.cluster.unlinked = {{"sim:0", "sim:1"}}; }, "no link"},
      {"an input on a device", "towers", at(op(kInput), [](PlanNode& n) { n.holders = DeviceList{0}; n.by_group = {n.by_group.back(), n.by_group.back()}; }), "no device"},
      {"a result on a device", "towers", at(op(kFetch), [](PlanNode& n) { n.holders = DeviceList{0}; n.by_group = {n.by_group.back(), n.by_group.back()}; }), "no device"},
  };
}

/// The plan's first result under a name that means another value to its graph.
void rename_result(PlacedGraph& p, const std::function<void(Graph&, const std::string&, ValueId)>& name_another) {
  auto& [name, v] = p.fetches.at(0);
  const NodeId other = p.maker(p.fetches.at(1).second).user;  // whose cause is what it brings
  if (other == p.maker(v).user) throw InternalError("two results of one value");
  Graph graph = *p.graph;
  name = "result";
  PlanNode& n = p.nodes[static_cast<std::size_t>(p.value(v).maker)];
  p.values[static_cast<std::size_t>(v)].name = n.name = fetch_node(name);
  name_another(graph, name, {other, 0});
  p.graph = std::make_shared<const Graph>(std::move(graph));
}

/// The first node of a role that reads what towers compute becomes one of another, in the graph too: so it is read from a file.
void give_role(PlacedGraph& p, Role from, Role to) {
  PlanNode& n = first(p, [&](const PlanNode& x) {
    if (x.scope != Scope::tower || !x.def || x.inserted || x.role != from) return false;
    return std::any_of(x.inputs.begin(), x.inputs.end(), [&](ValueIndex v) { return v >= 0 && p.maker(v).scope == Scope::tower; });
  });
  Graph graph = *p.graph;
  graph.edit(n.user).role = n.role = to;
  p.graph = std::make_shared<const Graph>(std::move(graph));
}

/// Fields that nothing reads while the plan runs, and that say what is not so.
std::vector<Damage> records() {
  return {
      {"a result that another fetch brings", "towers", [](PlacedGraph& p) { std::swap(p.fetches.at(0).second, p.fetches.at(1).second); }, "dangling: the result"},
      {"a result of a name that is a metric's", "towers", [](PlacedGraph& p) { rename_result(p, [](Graph& g, const std::string& name, ValueId other) { g.metrics[name] = other; }); }, "dangling: the result"},
      {"an alias of another value", "towers", [](PlacedGraph& p) { rename_result(p, [](Graph& g, const std::string& name, ValueId other) { g.metrics.erase(name), g.aliases[name] = other; }); }, "dangling: the result"},
      {"phases said to be in another order", "gpipe", [](PlacedGraph& p) { p.placement.order = PhaseOrder::by_tower; }, "phase: stream"},
      {"phases said to be interleaved", "interleaved", [](PlacedGraph& p) { p.placement.order = PhaseOrder::one_f_one_b; }, "phase: stream"},
      {"a group with more state than its variables", "towers", [](PlacedGraph& p) { for (DeviceGroup& g : p.groups) g.state += 64; }, "memory: the variables"},
      {"a group with state where no variable is", "towers", [](PlacedGraph& p) {
         auto empty = std::find_if(p.groups.begin(), p.groups.end(), [](const DeviceGroup& g) { return g.state == 0; });
         if (empty == p.groups.end()) throw InternalError("each of its groups has variables");
         empty->state = 128;
       }, "memory: the variables"},
      {"links that lead from one device alone", "mirrored", [](PlacedGraph& p) { p.cluster.links = {{{p.cluster.devices.at(0).id}, "host", 1e9, 0}}; }, "no link: '"},
      {"a class of another share", "towers", [](PlacedGraph& p) { ++p.classes.at(0).share; }, "phase"},
      {"a class for other kinds", "towers", [](PlacedGraph& p) { p.classes.at(0).kinds = {"gpu"}; }, "no device"},
      {"a pattern of other spaces", "layers", [](PlacedGraph& p) { for (LocalPlace& l : p.classes.at(0).pattern) l.space = 0; }, "no device"},
      {"a class with smaller frames", "towers", [](PlacedGraph& p) { for (FrameSize& f : p.classes.at(0).frame) f.kept = f.transient = 0; }, "outside: '"},
      {"a tail that no class has", "gpipe", [](PlacedGraph& p) { p.frames.at(0).tail += 64; }, "memory"},
      {"a class with larger frames", "towers", [](PlacedGraph& p) { p.classes.at(0).frame.at(0).kept += 64000; }, "memory"},
      {"a class without frames", "towers", [](PlacedGraph& p) { p.classes.at(0).frame.clear(); }, "memory"},
      {"a copy by a kernel of another name", "towers", at(op(kCopy), [](PlanNode& n) { for (Variant& v : n.by_group) if (!v.kernel.empty()) v.kernel = "nonsense"; }), "no kernel"},
      {"a split by a kernel of another name", "towers", at(op(kSplit), [](PlanNode& n) { n.by_class[0].kernel = "nonsense"; }), "no kernel"},
      {"a shared node of another epoch", "towers", at(op(kAggregate), [](PlanNode& n) { ++n.epoch; }), "phase"},
      {"an update of an epoch that no tower reaches", "towers", at(op("momentum"), [](PlanNode& n) { n.epoch += 7; }), "phase"},
      {"an input inside its feed", "towers", at(op(kInput), [](PlanNode& n) { n.by_group.back().outputs.at(0).offset = 64; }), "outside"},
      {"a copy of another role", "towers", at(op(kCopy), [](PlanNode& n) { n.role = Role::backward; }), "phase"},
      {"a node of another role", "towers", at(op("relu"), [](PlanNode& n) { n.role = Role::update; }), "phase"},
      {"a kernel on devices that hold nothing of a node", "towers", [](PlacedGraph& p) {
         PlanNode& n = first(p, op("momentum"));
         for (std::size_t g = 0; g < p.groups.size(); ++g) {
           const std::vector<int>& devices = p.groups[g].devices;
           if (std::none_of(devices.begin(), devices.end(), [&](int d) { return std::count(n.holders.begin(), n.holders.end(), d) > 0; })) return void(n.by_group[g].kernel = "reference");
         }
         throw InternalError("every group holds it");
       }, "no device: '"},
      {"a variable's bytes on devices that do not have it", "towers", [](PlacedGraph& p) {
         PlanNode& n = first(p, op(kVariable));
         for (std::size_t g = 0; g < p.groups.size(); ++g) {
           const std::vector<int>& devices = p.groups[g].devices;
           if (std::none_of(devices.begin(), devices.end(), [&](int d) { return std::count(n.holders.begin(), n.holders.end(), d) > 0; })) return void(n.by_group[g].outputs = {{Slot::kState, 0, 0}});
         }
         throw InternalError("every group holds it");
       }, "no device: '"},
      {"a copy that is there for another node", "towers", [](PlacedGraph& p) { first(p, op(kCopy)).user = first(p, op("relu")).user; }, "no cause: '"},
      {"sums of some towers that are there for another join", "pieces", [](PlacedGraph& p) { first(p, op(kPreAggregate)).user = first(p, op("relu")).user; }, "no cause: '"},
      {"a forward node that its file calls backward", "gpipe", [](PlacedGraph& p) { give_role(p, Role::forward, Role::backward); }, "phase: '"},
      {"a backward node that its file calls forward", "gpipe", [](PlacedGraph& p) { give_role(p, Role::backward, Role::forward); }, "phase: '"},
      {"a region larger than what lies in it", "towers", [](PlacedGraph& p) { for (DeviceGroup& g : p.groups) g.region += 64; }, "memory: the region of "},
      {"a transient frame larger than what lies in it", "towers", [](PlacedGraph& p) {
         for (TowerClass& c : p.classes)
           for (FrameSize& f : c.frame) f.transient += 64;
         for (FrameSize& f : p.frames) f.transient += 64;
       }, "memory: the transient frame of tower "},
      {"a node under another name", "towers", at(op("relu"), [](PlanNode& n) { n.name = "rely"; }), "dangling"},
  };
}

}  // namespace

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all = [] {
    std::vector<Damage> out;
    for (auto part : {nodes_and_values(), moves_and_state(), schedule(), memory(), meaning(), records(), damages_of_some_plans()}) out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return all;
}

}  // namespace belfry::test
