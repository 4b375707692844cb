// Damage to what only some plans have: ranges, values computed again, chunks, gates, servers' plans, GPUs.
#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/once.h>

#include "damage_tools.h"

namespace belfry::test {

namespace {

Test ranged(const char* name) {
  return [name](const PlanNode& n) { return n.ranged && n.op == name; };
}
bool is_again(const PlanNode& n) { return n.again; }
bool is_update(const PlanNode& n) { return n.def && !n.donates.empty(); }


/// The first forward node of a tower that is computed again, and the second one.
std::pair<PlanNode*, PlanNode*> pair_of_again(PlacedGraph& p) {
  PlanNode& again = first(p, is_again);
  PlanNode& own = first(p, [&](const PlanNode& n) { return !n.again && !n.inserted && n.user == again.user; });
  return {&own, &again};
}

/// All that reads one value reads another.
void redirect(PlacedGraph& p, ValueIndex from, ValueIndex to) {
  for (PlanNode& n : p.nodes)
    for (ValueIndex& v : n.inputs)
      if (v == from) v = to;
}

void remove(PlacedGraph& p, const PlanNode& n) {
  p.nodes.erase(p.nodes.begin() + (&n - p.nodes.data()));
  reindex(p);
}

std::vector<int> reversed(const DeviceList& list) { return {list.get().rbegin(), list.get().rend()}; }

std::vector<Damage> ranges() {
  return {
      {"ranges of what has too few elements", "sharded", at([](const PlanNode& n) { return n.scope == Scope::state && !n.ranged; }, [](PlanNode& n) { n.ranged = true; }), "ranges: '"},
      {"ranges in a tower", "sharded", at([](const PlanNode& n) { return n.scope == Scope::tower && n.def; }, [](PlanNode& n) { n.ranged = true; }), "ranges: '"},
      {"ranges of what computes no element alone", "sharded", at([](const PlanNode& n) { return n.op == kAllGather; }, [](PlanNode& n) { n.ranged = true; }), "ranges: '"},
      {"a sum in ranges said to be whole", "sharded", at(ranged(kAggregate), [](PlanNode& n) { n.ranged = false; }), "ranges: '|overlap: '|outside: '"},
      {"an update in ranges said to be whole", "sharded", at([](const PlanNode& n) { return n.ranged && is_update(n); }, [](PlanNode& n) { n.ranged = false; }), "ranges: '"},
      {"a slot in ranges said to be whole", "sharded", at(ranged(kVariable), [](PlanNode& n) { n.ranged = false; }), "ranges: '"},
      {"a range dropped", "sharded", at(ranged(kAggregate), [](PlanNode& n) { n.holders = DeviceList{n.holders.front()}; }), "ranges: '"},
      {"a range doubled", "sharded", at(ranged(kAggregate), [](PlanNode& n) { n.holders = DeviceList{n.holders.front(), n.holders.front()}; }), "no device: '"},
      {"ranges in another order than their reader's", "sharded", at(ranged(kAggregate), [](PlanNode& n) { n.holders = reversed(n.holders); }), "ranges: '"},
      {"a slot's ranges in another order", "sharded", at(ranged(kVariable), [](PlanNode& n) { n.holders = reversed(n.holders); }), "ranges: '|state: '"},
      {"a gather lost", "sharded", [](PlacedGraph& p) {
         PlanNode& g = first(p, op(kAllGather));
         ValueIndex whole = g.outputs.at(0), ranges = g.inputs.at(0);
         redirect(p, whole, ranges);
         for (auto& [variable, u] : p.updates) if (u == whole) u = ranges;
         remove(p, g);
       }, "ranges: '|dangling: |state: '"},
      {"a gather of another value's ranges", "sharded", [](PlacedGraph& p) { auto g = all(p, op(kAllGather)); std::swap(g.at(0)->inputs.at(0), g.at(1)->inputs.at(0)); }, "type: '|ranges: '|state: '|dangling: '"},
      {"a gather that adds", "sharded", at(op(kAllGather), [](PlanNode& n) { n.attributes.set("how", "sum"); }), "ranges: '"},
      {"a gather on one of its devices", "sharded", at(op(kAllGather), [](PlanNode& n) { n.holders = DeviceList{n.holders.front()}; }), "state: '|unbound: |no device: '"},
      {"a gather of what is whole", "sharded", [](PlacedGraph& p) {
         first(p, op(kAllGather)).inputs.at(0) = first(p, [](const PlanNode& n) { return n.op == kVariable && !n.ranged; }).outputs.at(0);
       }, "ranges: '|type: '"},
      {"a fetch of ranges as of something whole", "sharded", [](PlacedGraph& p) {
         first(p, [&](const PlanNode& n) { return n.op == kFetch && p.maker(n.inputs.at(0)).ranged; }).attributes.set("how", "same");
       }, "ranges: '"},
      {"a range past the variable's bytes", "sharded", [](PlacedGraph& p) {
         for (PlanNode* n : all(p, ranged(kVariable)))
           for (Variant& v : n->by_group)
             for (Slot& s : v.outputs) s.offset += std::int64_t{1} << 20;
       }, "outside: '"},
      {"a link between ranges cut", "sharded", [](PlacedGraph& p) { first(p, op(kAllGather)), p.cluster.unlinked = {{"sim:0", "sim:1"}}; }, "no link: '"},
  };
}

std::vector<Damage> computed_again() {
  return {
      {"again lost", "recomputed", [](PlacedGraph& p) {
         auto [own, again] = pair_of_again(p);
         redirect(p, again->outputs.at(0), own->outputs.at(0));
         remove(p, *again);
       }, "overlap: |missing wait: |unbound: "},
      {"again twice", "recomputed", [](PlacedGraph& p) {
         PlanNode n = first(p, is_again);
         for (ValueIndex& v : n.outputs) {
           p.values.push_back(p.value(v));
           v = static_cast<int>(p.values.size()) - 1;
         }
         n.order = 9999, n.name += "2";
         for (ValueIndex v : n.outputs) p.values.at(static_cast<std::size_t>(v)).name += "2";
         p.nodes.push_back(n);
         reindex(p);
       }, "dangling: '"},
      {"again of what is no tower's forward", "recomputed", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return x.scope == Scope::tower && x.def && !x.inserted && x.role == Role::backward; });
         n.again = n.inserted = true, n.name += ".again";
       }, "dangling: '"},
      {"again of an update", "recomputed", [](PlacedGraph& p) { PlanNode& n = first(p, is_update); n.again = n.inserted = true, n.name += ".again"; }, "dangling: '"},
      {"again of a feed", "recomputed", [](PlacedGraph& p) { PlanNode& n = first(p, op(kInput)); n.again = n.inserted = true, n.name += ".again"; }, "dangling: '"},
      {"again of a variable", "recomputed", [](PlacedGraph& p) { PlanNode& n = first(p, op(kVariable)); n.again = n.inserted = true, n.name += ".again"; }, "dangling: '"},
      {"again of another node", "recomputed", [](PlacedGraph& p) {
         auto a = all(p, is_again);
         std::swap(a.at(0)->user, a.at(1)->user);
       }, "dangling: '"},
      {"again from another input", "recomputed", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return x.again && x.op == "tanh"; });
         PlanNode& other = first(p, [&](const PlanNode& x) { return x.op == "tanh" && !x.again && x.user != n.user; });
         n.inputs.at(0) = other.inputs.at(0);
       }, "dangling: '"},
      {"again with other attributes", "recomputed", at([](const PlanNode& n) { return n.again && n.op == "dropout"; }, [](PlanNode& n) { n.attributes.set("stream", std::int64_t{77}); }), "dangling: '"},
      {"again under another name", "recomputed", at(is_again, [](PlanNode& n) { n.name += "again"; }), "dangling: '"},
      {"again as part of forward", "recomputed", at(is_again, [](PlanNode& n) { n.role = Role::forward; }), "phase: '"},
      {"again behind its reader", "recomputed", [](PlacedGraph& p) {
         PlanNode& n = first(p, is_again);
         PlanNode& reader = first(p, [&](const PlanNode& x) { return std::count(x.inputs.begin(), x.inputs.end(), n.outputs.at(0)) > 0; });
         std::swap(n.order, reader.order);
       }, "overlap: '|missing wait: '|stuck: "},
  };
}

std::vector<Damage> chunks_and_stages() {
  return {
      {"chunks exchanged", "interleaved", [](PlacedGraph& p) { auto& e = stream(p, 0, "tower0").entries; std::swap(e.front(), e.back()); }, "stuck: |missing wait: |overlap: "},
      {"a chunk in another phase", "interleaved", [](PlacedGraph& p) {
         auto late = [](const PlanNode& x, int phase) { return x.scope == Scope::tower && !x.phases.empty() && x.phases.at(0) > phase; };
         PlanNode& n = first(p, [&](const PlanNode& x) { return late(x, 1) && !values_read(x).empty() && late(p.maker(values_read(x)[0]), 0) && p.maker(values_read(x)[0]).vector == x.vector; });  // a copy would wait
         n.phases.at(0) = 0;
       }, "overlap: |missing wait: |stuck: |phase |stream of another device: "},
      {"a chunk on the other device", "interleaved", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return x.op == "matmul" && x.role == Role::forward && x.phases.at(0) > 0; });
         std::vector<int> v = p.devices(n);
         for (int& d : v) d = d < 0 ? d : 1 - d;
         move_to(p, n, v);
       }, "no device: |phase |stream of another device: |unbound: "},
      {"all chunks in one phase", "interleaved", [](PlacedGraph& p) { for (PlanNode* n : all(p, [](const PlanNode& x) { return x.scope == Scope::tower; })) for (int& q : n->phases) q = q < 0 ? q : 0; }, "stream of another device: phase"},
      {"one slot for all chunks in flight", "interleaved", [](PlacedGraph& p) { for (PlanStream& s : p.streams) for (StreamEntry& e : s.entries) e.slot = 0; }, "overlap: |missing wait: "},
      {"fewer slots than are in flight", "interleaved", [](PlacedGraph& p) { for (PlanStream& s : p.streams) s.slots = std::min(s.slots, 1); }, "outside: slot"},
      {"more slots than towers", "interleaved", [](PlacedGraph& p) { for (PlanStream& s : p.streams) if (s.slots) s.slots = p.towers + 1; }, "outside: stream"},
      {"a backward copy lost", "hybrid", [](PlacedGraph& p) {
         PlanNode& c = first(p, [](const PlanNode& n) { return n.op == kCopy && n.scope == Scope::tower && n.role == Role::backward; });
         remove(p, c);
       }, "unbound: "},
      {"a copy to the other pipeline", "hybrid", [](PlacedGraph& p) {
         PlanNode& c = first(p, [](const PlanNode& n) { return n.op == kCopy && n.scope == Scope::tower; });
         std::vector<int> v = p.devices(c);
         std::reverse(v.begin(), v.end());
         move_to(p, c, v);
       }, "no device: |phase |stream of another device: |unbound: |needless copy: |no link: "},
      {"a stage's variable on one pipeline alone", "hybrid", at([](const PlanNode& n) { return n.scope == Scope::state && n.holders.size() == 2; }, [](PlanNode& n) { n.holders = DeviceList{n.holders.front()}; }), "state: '"},
      {"towers exchanged between pipelines", "hybrid", [](PlacedGraph& p) {
         for (std::vector<int>& v : p.vectors)
           if (v.size() > 2) std::swap(v.front(), v.back());
       }, "no device: |phase |stream of another device: |unbound: "},
  };
}

std::vector<Damage> gates_and_types() {
  auto gated = [](const PlanNode& n) { return n.def && n.op == "where"; };
  return {
      {"an update past its gate", "halves", [=](PlacedGraph& p) {
         PlanNode& w = first(p, gated);
         redirect(p, w.outputs.at(0), w.inputs.at(1));
       }, "dangling: '|state: '|dangling: "},
      {"a gate turned round", "halves", at(gated, [](PlanNode& n) { std::swap(n.inputs.at(1), n.inputs.at(2)); }), "dangling: '"},
      {"a gate of another condition", "halves", [=](PlacedGraph& p) {
         PlanNode& w = first(p, gated);
         PlanNode& other = first(p, [&](const PlanNode& n) { return n.scope == Scope::shared && n.def && n.outputs.at(0) != w.inputs.at(0) && p.value(n.outputs.at(0)).type == p.value(w.inputs.at(0)).type; });
         w.inputs.at(0) = other.outputs.at(0);
       }, "dangling: '"},
      {"halves read as f32", "halves", [](PlacedGraph& p) {
         PlanNode& c = first(p, op("cast"));
         redirect(p, c.outputs.at(0), c.inputs.at(0));
       }, "type: |dangling: '"},
      {"a cast to another dtype", "halves", at(op("cast"), [](PlanNode& n) { n.attributes.set("dtype", f64); }), "type: |dangling: '"},
      {"a value of another dtype", "halves", [](PlacedGraph& p) { p.values.at(static_cast<std::size_t>(first(p, op("cast")).outputs.at(0))).type.dtype = f64; }, "type: '"},
      {"a loss scaled by another variable", "halves", [](PlacedGraph& p) {
         PlanNode& m = first(p, [&](const PlanNode& n) {
           return n.op == "mul" && std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueIndex v) { return v >= 0 && p.maker(v).scope == Scope::state; });
         });
         for (ValueIndex& v : m.inputs)
           if (v >= 0 && p.maker(v).scope == Scope::state) {
             v = first(p, [&, v](const PlanNode& n) { return n.scope == Scope::state && n.outputs.at(0) != v; }).outputs.at(0);
             return;
           }
       }, "type: |dangling: '|split: "},
  };
}

ClusterDevice& gpu_of(PlacedGraph& p, int index) {
  for (ClusterDevice& d : p.cluster.devices)
    if (d.id == DeviceId{0, "gpu", index, -1}) return d;
  throw InternalError("the plan has no such GPU");
}

/// Of the first node that is computed by one kernel, another.
void name_kernel(PlacedGraph& p, const std::string& is, const std::string& becomes) {
  auto all_of = [&](PlanNode& n) { return n.scope == Scope::tower ? &n.by_class : &n.by_group; };
  auto names = [&](const Variant& v) { return v.kernel == is; };
  PlanNode& n = first(p, [&](const PlanNode& x) { return x.def && x.op != kInput && x.scope != Scope::state && (std::any_of(x.by_class.begin(), x.by_class.end(), names) || std::any_of(x.by_group.begin(), x.by_group.end(), names)); });
  for (Variant& v : *all_of(n))
    if (names(v)) v.kernel = becomes;
}

std::vector<Damage> servers_and_gpus() {
  return {
      {"an update in a worker's plan", "worker", [](PlacedGraph& p) {
         if (!p.updates.empty()) throw InternalError("the plan has updates");
         p.updates.emplace_back(first(p, op(kVariable)).outputs.at(0), first(p, [](const PlanNode& n) { return n.scope == Scope::shared && n.def; }).outputs.at(0));
       }, "state: '"},
      {"a gradient that is pushed under another's name", "worker", [](PlacedGraph& p) {
         auto f = all(p, [](const PlanNode& n) { return n.op == kFetch; });
         std::swap(f.at(0)->inputs.at(0), f.at(1)->inputs.at(0));
       }, "dangling: '|type: '|split: '|ranges: '"},
      {"a pushed gradient that nobody fetches", "worker", at(op(kFetch), [](PlanNode& n) { n.inputs.clear(); }), "dangling: '"},
      {"a server's update lost", "server", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return is_update(x) && x.op != kStore; });
         const ValueIndex variable = n.donates.at(0).second;
         n.donates.erase(n.donates.begin());
         std::erase_if(p.updates, [&](auto u) { return u.first == variable; });
       }, "state: '"},
      {"a server that updates by another gradient", "server", [](PlacedGraph& p) {
         auto gradient = [&](PlanNode* n) -> ValueIndex& {
           return *std::find_if(n->inputs.begin(), n->inputs.end() - 1, [&](ValueIndex v) { return p.maker(v).op == kInput; });
         };
         auto u = all(p, op("momentum"));
         for (std::size_t a = 0; a < u.size(); ++a)
           for (std::size_t b = a + 1; b < u.size(); ++b)
             if (p.value(gradient(u[a])).type == p.value(gradient(u[b])).type && gradient(u[a]) != gradient(u[b])) return std::swap(gradient(u[a]), gradient(u[b]));
         throw InternalError("the plan has no gradients alike");
       }, "dangling: '"},
      {"two devices of one name", "towers", [](PlacedGraph& p) { p.cluster.devices.at(1).id = p.cluster.devices.at(0).id; }, "no device: "},
      {"a GPU beside its own slice", "gpus", [](PlacedGraph& p) {
         ClusterDevice& other = p.cluster.devices.at(1);
         if (p.cluster.devices.at(0).id.kind != "gpu") throw InternalError("the plan has no GPU");
         other.id = p.cluster.devices[0].id.whole();
         other.id.slice = 0;
       }, "no device: gpu:0 and its slice gpu:0/0"},
      {"no host", "towers", [](PlacedGraph& p) { std::erase_if(p.cluster.devices, [](const ClusterDevice& d) { return d.id.kind == "cpu"; }); }, "no device: "},
      {"one host thread for two GPUs", "gpus", [](PlacedGraph& p) {
         gpu_of(p, 1);
         for (PlanStream& s : p.streams) s.thread = 0;
       }, "thread: host thread 0 launches on gpu:0 and on gpu:1"},
      {"two GPUs in one memory", "gpus", [](PlacedGraph& p) { gpu_of(p, 1).space = gpu_of(p, 0).space; }, "memory: gpu:0 and gpu:1 are said to share"},
      {"a GPU in the host's memory", "gpus", [](PlacedGraph& p) { gpu_of(p, 0).space = p.cluster.space(p.cluster.host()); }, "memory: gpu:0 and cpu:0 are said to share"},
      {"a GPU's kernel that there is not", "gpus", [](PlacedGraph& p) { name_kernel(p, "nvrtc_elementwise", "nvrtc_fast"); }, "no kernel: '"},
      {"a GPU's kernel of another engine than it can have", "gpus", [](PlacedGraph& p) { name_kernel(p, "nvrtc_elementwise", "nvrtc_elementwise@eng1"); }, "no kernel: '"},
      {"a GPU's kernel of another op", "gpus", [](PlacedGraph& p) { name_kernel(p, "nvrtc_elementwise", "nvrtc_top_k"); }, "no kernel: '"},
      {"a GPU's kernel of another group", "gpus", [](PlacedGraph& p) { name_kernel(p, "nvrtc_update", "members_in_turn"); }, "no kernel: '"},
      {"a reference on a GPU", "gpus", [](PlacedGraph& p) { name_kernel(p, "nvrtc_elementwise", "reference"); }, "no kernel: '"},
      {"a CPU's kernel that there is not", "towers", [](PlacedGraph& p) { name_kernel(p, "reference", "fast"); }, "no kernel: '"},
      {"no room for what a sum lands", "gpus", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return x.op == kAggregate && std::any_of(x.by_group.begin(), x.by_group.end(), [](const Variant& v) { return v.scratch_bytes > 0; }); });
         for (Variant& v : n.by_group) v.scratch_bytes = 0;
       }, "outside: '"},
      {"less room than a sum lands", "gpus", [](PlacedGraph& p) {
         PlanNode& n = first(p, [](const PlanNode& x) { return x.op == kAggregate && std::any_of(x.by_group.begin(), x.by_group.end(), [](const Variant& v) { return v.scratch_bytes > 0; }); });
         for (Variant& v : n.by_group) v.scratch_bytes /= 2;
       }, "outside: '"},
      {"a GPU that reads the host's memory", "gpus", [](PlacedGraph& p) {
         PlanNode& s = first(p, [](const PlanNode& n) { return n.op == kSplit; });
         redirect(p, s.outputs.at(0), s.inputs.at(0));
       }, "split: |type: |dangling: |no device: "},
      {"threads of a tower that are none", "towers", [](PlacedGraph& p) { p.threads = 0; }, "thread: "},
      {"threads of a tower beyond counting", "towers", [](PlacedGraph& p) { p.threads = 1 << 30; }, "thread: "},
      {"a plan of another graph", "towers", [](PlacedGraph& p) {
         const PlacedGraph& other = plans_to_damage().at("recomputed");
         if (p.graph == other.graph) throw InternalError("it is that graph");
         p.graph = other.graph;
       }, "dangling: '|no cause: '|made twice: '|type: "},
      {"two inserted nodes of one name", "towers", [](PlacedGraph& p) {
         auto moves = all(p, [](const PlanNode& n) { return n.inserted && !n.def && n.op != kFused; });
         moves.at(1)->name = moves.at(0)->name;
       }, "made twice: two nodes"},
      {"two values of one name", "towers", [](PlacedGraph& p) { p.values.at(1).name = p.values.at(0).name; }, "made twice: two values"},
      {"a result of a name that is taken", "towers", [](PlacedGraph& p) { p.fetches.at(1).first = p.fetches.at(0).first; }, "made twice: two results"},
      {"a tower's node of a later epoch", "towers", at(op("relu"), [](PlanNode& n) { ++n.epoch; }), "phase"},
      {"towers' parts closer than they are long", "many pieces", [](PlacedGraph& p) {
         bool changed = false;
         for (PlanNode& n : p.nodes)
           if (n.scope == Scope::tower)
             for (Variant& v : n.by_group)
               for (Slot& s : v.outputs)
                 if (s.stride > 64) s.stride /= 2, s.stride -= s.stride % 64, changed = true;
         if (!changed) throw InternalError("the plan has no parts side by side");
       }, "overlap|missing wait"},
      {"a tower without rows that is somewhere", "few rows", [](PlacedGraph& p) { p.vectors.at(0).at(7) = 0; }, "no device: tower 7 has no rows"},
      {"towers beyond counting", "towers", [](PlacedGraph& p) { p.towers = 1 << 30; }, "no device: |phase: "},
  };
}

std::vector<Damage> accumulations() {
  return {
      {"a part that the sum of its device lacks", "accumulating", [](PlacedGraph& p) {
         PlanNode& sum = first(p, accumulates);
         first(p, [&](const PlanNode& n) { return n.inputs == sum.outputs; }).inputs = sum.inputs;
       }, "missing wait|overlap|dangling|unbound|no device"},
      {"a tower that adds by max", "accumulating", at(accumulates, [](PlanNode& n) { n.attributes.set("how", "max"); }), "split"},
      {"sums of a stack in one place", "accumulating", [](PlacedGraph& p) {
         for (Variant& v : first(p, accumulates).by_group)
           for (Slot& s : v.outputs) s.stride = 0;
       }, "overlap"},
      {"towers that add what others make", "accumulating", [](PlacedGraph& p) {
         PlanNode& sum = first(p, accumulates);
         const auto other = all(p, [&](const PlanNode& n) { return accumulates(n) && n.vector != sum.vector; });
         sum.vector = sum.owners = other.at(0)->vector;
       }, "no device|phase|unbound"},
      {"a stack that is there for another join", "accumulating", [](PlacedGraph& p) { first(p, accumulates).user = first(p, op("tanh")).user; }, "no cause: '"},
      {"a stack of stacks", "accumulating", [](PlacedGraph& p) {
         const auto sums = all(p, accumulates);
         sums.at(1)->inputs = sums.at(0)->outputs;
       }, "no device|type|dangling|no cause"},
      {"a tower that adds before its part is there", "accumulating", [](PlacedGraph& p) {
         PlanNode& sum = first(p, accumulates);
         std::swap(sum.order, p.nodes[static_cast<std::size_t>(p.value(sum.inputs.at(0)).maker)].order);
       }, "overlap|missing wait"},
  };
}

/// The slot of a value that is made once and that steps read.
Slot& kept(PlacedGraph& p) {
  const std::vector<bool> kept = kept_values(p);
  for (PlanNode& n : p.nodes)
    if (n.once && kept[static_cast<std::size_t>(n.outputs.at(0))]) return n.by_group[0].outputs.at(0);
  throw InternalError("the plan keeps nothing");
}

std::vector<Damage> once() {
  auto is_shared = [](const PlanNode& n) { return n.scope == Scope::shared && n.def && !n.once; };
  auto mark = [](PlanNode& n) { n.once = true; };
  return {
      {"made once of a feed", "made once", at([=](const PlanNode& n) { return is_shared(n) && !is_op(n, kInput); }, mark), "once: '"},
      {"a feed made once", "made once", at(op(kInput), mark), "once: '"},
      {"made once in a tower", "made once", at([](const PlanNode& n) { return n.scope == Scope::tower && n.def; }, mark), "once: '"},
      {"a result made once", "made once", at(op(kFetch), mark), "once: '"},
      {"made once where steps update variables", "mirrored", at(is_shared, mark), "once: '"},
      {"what is made once made in each step", "made once", at([](const PlanNode& n) { return n.once; }, [](PlanNode& n) { n.once = false; }), "once: '|overlap: |missing wait"},
      {"made once behind steps", "made once", [=](PlacedGraph& p) { std::swap(first(p, [](const PlanNode& n) { return n.once; }).order, first(p, [](const PlanNode& n) { return n.name == "scaled/mul"; }).order); }, "once: '"},
      {"made once before what it reads", "made once", [](PlacedGraph& p) {
         PlanNode& reader = first(p, [&](const PlanNode& n) { return n.once && !n.inputs.empty() && p.maker(n.inputs[0]).once; });
         std::swap(reader.order, p.nodes[static_cast<std::size_t>(p.value(reader.inputs[0]).maker)].order);
       }, "overlap: "},
      {"one kept value in the bytes of another", "made once", [](PlacedGraph& p) {
         const std::vector<bool> kept = kept_values(p);
         const auto some = all(p, [&](const PlanNode& n) { return n.once && kept[static_cast<std::size_t>(n.outputs.at(0))]; });
         some.at(1)->by_group[0].outputs.at(0) = some.at(0)->by_group[0].outputs.at(0);
       }, "overlap: '"},
      {"a kept value in bytes that steps use before its reader", "made once", [=](PlacedGraph& p) { kept(p) = first(p, [&](const PlanNode& n) { return n.name == "scaled/mul"; }).by_group[0].outputs.at(0); }, "overlap: "},
      {"a kept value written over by who reads it last", "made once", [](PlacedGraph& p) {
         const PlanNode& grown = first(p, [](const PlanNode& n) { return n.once && n.name == "scaled/exp"; });
         first(p, [&](const PlanNode& n) { return std::count(n.inputs.begin(), n.inputs.end(), grown.outputs.at(0)) > 0; }).by_group[0].outputs.at(0) = grown.by_group[0].outputs.at(0);
       }, "overlap: 'scaled/exp' is made once, and overwritten in a step"},
  };
}

/// A value that lies at a place of its own in each slot of a frame.
Slot& listed(PlacedGraph& p) {
  for (PlanNode& n : p.nodes)
    for (Variant& v : n.by_class)
      for (Slot& s : v.outputs)
        if (s.region == Slot::kKept && !s.more.empty()) return s;
  throw InternalError("no frame of the plan has places in slots");
}

std::vector<Damage> slots() {
  return {
      {"a place too few for the slots", "places in slots", [](PlacedGraph& p) { listed(p).more.pop_back(); }, "outside: 'x.split0' has 2 places for 3 slots"},
      {"a place too many for the slots", "places in slots", [](PlacedGraph& p) { listed(p).more.push_back(0); }, "outside: 'x.split0' has 4 places for 3 slots"},
      {"one place in all slots", "places in slots", [](PlacedGraph& p) {
         Slot& s = listed(p);
         s.more.assign(s.more.size(), s.offset);
       }, "overlap|missing wait"},
      {"a place behind the frame", "places in slots", [](PlacedGraph& p) { listed(p).more.back() = 1 << 20; }, "outside: 'x.split0' leaves the frame"},
      {"slots so far apart that the last is behind the frame", "places in slots", [](PlacedGraph& p) {
         Slot& s = listed(p);
         s.more.clear(), s.stride = 1 << 20;
       }, "outside: 'x.split0' leaves the frame"},
      {"places of what has one for all slots", "places in slots", [](PlacedGraph& p) {
         Slot& s = listed(p);
         s = {Slot::kTransient, s.offset, 64};
       }, "outside: 'x.split0' has several places in the transient"},
      {"scratch with places", "places in slots", [](PlacedGraph& p) {
         for (PlanNode& n : p.nodes)
           for (Variant& v : n.by_class)
             if (v.scratch_bytes == 0) return void(v.scratch = {Slot::kTransient, 0, 0, {64}});
       }, "outside: the scratch of 'x.split0' has 2 places"},
  };
}

}  // namespace

std::vector<Damage> damages_of_some_plans() {
  std::vector<Damage> out;
  for (auto part : {ranges(), computed_again(), chunks_and_stages(), gates_and_types(), servers_and_gpus(), accumulations(), once(), slots()}) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace belfry::test
