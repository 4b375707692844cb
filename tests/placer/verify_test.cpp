#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <sstream>

#include <belfry/frontends/draw/picture.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/known_kernels.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/gpu_kernel_names.h>
#include <belfry/placer/diff.h>

#include "damage.h"
#include "plans.h"
#include "says.h"

namespace belfry::test {
namespace {

bool opens_with(const std::vector<std::string>& found, const std::string& words) {
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, '|');)
    if (std::any_of(found.begin(), found.end(), [&](const std::string& f) { return f.starts_with(word); })) return true;
  return false;
}

class Damaged : public testing::TestWithParam<std::size_t> {};

TEST_P(Damaged, is_named_by_the_verifier) {
  const Damage& d = damages()[GetParam()];
  PlacedGraph plan = plans_to_damage().at(d.plan);
  ASSERT_EQ(verify(plan, reference_kernels()), std::vector<std::string>());
  d.act(plan);
  const std::vector<std::string> found = verify(plan, reference_kernels());
  ASSERT_FALSE(found.empty()) << "nothing found, wanted " << d.words;
  EXPECT_TRUE(opens_with(found, d.words)) << "wanted " << d.words << ", found " << found[0];
  // The place is said: a node, a device, a tower, or which entry of a table.
  EXPECT_THAT(found[0], testing::ContainsRegex("'[^']+'|(sim|cpu|gpu):[0-9]|[0-9]|first host")) << "says no place";
}

std::string test_name(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}
INSTANTIATE_TEST_SUITE_P(Plans, Damaged, testing::Range(std::size_t{0}, damages().size()), [](const auto& info) { return test_name(damages()[info.param].name); });

TEST(Verify, finds_nothing_in_any_plan_that_place_makes) {
  int plans = 0;
  for (const auto* list : {&nets(), &probes()})
    for (const Net& n : *list) {
      if (n.name == "two_heads") continue;  // its scopes ask for cpu:0 and cpu:1, which these clusters lack
      auto graph = std::make_shared<const Graph>(training_graph(n));
      for (auto [T, batch] : {std::pair{1, std::int64_t{1}}, {2, 7}, {3, 2}, {5, 8}})
        for (int devices : {1, 2, 3, 4})
          for (bool separate : {true, false})
            for (const NamedStrategy& s : strategies(T, devices)) {
              int streams = 1 + plans++ % 2;
              auto found = verify(place(graph, s.strategy, sim_cluster(devices, separate, streams), batch, {.fetches = fetches_of(*graph)}));
              ASSERT_TRUE(found.empty()) << n.name << " T" << T << " B" << batch << " n" << devices << (separate ? "" : " one space") << " streams " << streams << ", " << s.name << ": " << found[0];
            }
    }
  std::cout << plans << " plans\n";
}

TEST(Verify, place_refuses_what_it_would_object_to_where_a_link_is_missing) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  for (const auto& [a, b] : {std::pair{"sim:0", "sim:1"}, {"sim:0", "host"}})
    for (const NamedStrategy& s : strategies(4, 2)) {
      Cluster cluster = sim_cluster(2);
      cluster.unlinked = {{a, b}};
      try {
        PlacedGraph plan = place(graph, s.strategy, cluster, 8, {.fetches = fetches_of(*graph)});
        EXPECT_TRUE(verify(plan).empty()) << s.name << ": " << verify(plan)[0];
        EXPECT_TRUE(s.name == "towers" && b == std::string("sim:1")) << s.name << " crosses no link between " << a << " and " << b;
      } catch (const UserError& e) {
        EXPECT_NE(std::string(e.what()).find("and no link joins the spaces "), std::string::npos) << e.what();
      }
    }
}

// ---------------------------------------------------------------- waits

/// Nothing found under random interleavings, and the right bits.
void expect_runs_free_of_races(const PlacedGraph& plan, const Result& want, const std::string& where, std::uint64_t orders = 50) {
  Program program(std::make_shared<const PlacedGraph>(plan), reference_kernels());
  for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
  Runner runner(program);
  Tensors start = state_for(*plan.graph), feeds = feeds_for(*plan.graph, plan.batch);
  for (std::uint64_t seed = 0; seed < orders; ++seed) {
    for (const auto& [name, value] : start) program.set_state(name, value);
    Watcher watcher(program.bound());
    Outcome o = runner.run_interleaved(views(feeds), at_random(seed), &watcher);
    ASSERT_FALSE(o.error) << where;
    ASSERT_TRUE(watcher.found().empty()) << where << ": " << watcher.found()[0];
    for (const auto& [name, value] : want.state) ASSERT_TRUE(program.state(name) == value) << where << " variable " << name;
    for (const auto& [name, value] : want.fetched) ASSERT_TRUE(o.fetched.at(name) == value) << where << " fetch " << name;
  }
}

Result wanted(const PlacedGraph& plan) {
  const PlanRequest request = request_of(plan);
  TowerGraph tg = expand(plan.graph, {.towers = plan.towers, .batch = plan.batch, .threads = 1, .updates = request.updates, .fetches = request.fetches});
  return run_towers(tg, feeds_for(*plan.graph, plan.batch), state_for(*plan.graph));
}

TEST(BoundPlan, refuses_parts_that_lie_farther_apart_than_is_counted_or_nowhere) {
  auto with = [&](std::int64_t stride, const std::vector<std::int64_t>& more) {
    PlacedGraph plan = plans_to_damage().at("many pieces");
    for (PlanNode& n : plan.nodes)
      for (Variant& v : n.by_group)
        for (Slot& s : v.outputs)
          if (s.region == Slot::kRegion && n.scope == Scope::tower) s.stride = stride, s.more = more;
    return plan;
  };
  const PlacedGraph far = with(std::int64_t{1} << 62, {}), few = with(0, {64}), beyond = with(0, {64, std::int64_t{1} << 61});
  EXPECT_TRUE(says([&] { BoundPlan bound(far); }, {"unbound: part ", "lies nowhere on sim:", "4611686018427387904 bytes apart"}));
  EXPECT_TRUE(says([&] { BoundPlan bound(few); }, {"unbound: part ", "lies nowhere on sim:", "there are 2 places"}));
  EXPECT_NE(fmt::format("{}", fmt::join(verify(beyond), "; ")).find("lies at byte"), std::string::npos);
  EXPECT_NE(fmt::format("{}", fmt::join(verify(with(0, std::vector<std::int64_t>(99, 64))), "; ")).find("has 100 places on sim:"), std::string::npos);
}

class WaitsOf : public testing::TestWithParam<std::string> {};

TEST_P(WaitsOf, are_named_when_lost_or_are_redundant) {
  PlacedGraph plan = plans_to_damage().at(GetParam());
  Result want = wanted(plan);
  int needed = 0, redundant = 0;
  auto judge = [&](const std::string& what) {
    auto found = verify(plan);
    if (found.empty()) ++redundant, expect_runs_free_of_races(plan, want, what);
    else {
      ++needed;
      EXPECT_TRUE(opens_with(found, "missing wait|overlap")) << what << ": " << found[0];
    }
  };
  for (PlanNode& n : plan.nodes)
    for (std::size_t k = 0; k < n.waits.size(); ++k) {
      std::vector<Wait> whole = n.waits;
      n.waits.erase(n.waits.begin() + static_cast<std::ptrdiff_t>(k));
      judge(n.name + " without its wait " + to_string(whole[k].relation) + " on " + plan.value(whole[k].value).name);
      n.waits = std::move(whole);
      if (HasFatalFailure()) return;
    }
  for (PlanStream& s : plan.streams)
    for (StreamEntry& e : s.entries)
      if (int after = std::exchange(e.after, -1); after >= 0) {
        judge("tower " + std::to_string(e.tower) + " not after tower " + std::to_string(after));
        e.after = after;
      }
  EXPECT_GT(needed, 0);
  std::cout << GetParam() << ": " << needed << " waits whose loss the verifier names, " << redundant << " redundant\n";
}
INSTANTIATE_TEST_SUITE_P(Plans, WaitsOf, testing::Values("towers", "mirrored", "layers", "gpipe", "forward only", "late reader", "sharded", "recomputed", "interleaved", "hybrid", "sharded over four"),
                         [](const auto& info) { return test_name(info.param); });

// ---------------------------------------------------------------- every damage to every plan

/// The same with sim devices in place of GPUs, which run here.
PlacedGraph simulated(PlacedGraph plan) {
  for (ClusterDevice& d : plan.cluster.devices)
    if (d.id.kind == "gpu") d.id.kind = "sim", d.space = to_string(d.id);
  for (TowerClass& c : plan.classes) std::replace(c.kinds.begin(), c.kinds.end(), std::string("gpu"), std::string("sim"));
  for (PlanNode& n : plan.nodes)
    for (Variants* all : {&n.by_class, &n.by_group}) std::for_each(all->begin(), all->end(), [&](Variant& v) { v.kernel = is_gpu_kernel(v.kernel, n.op) ? kReferenceKernel : v.kernel; });
  return plan;
}

TEST(Damages, are_named_in_every_plan_that_has_what_they_spoil_or_change_nothing) {
  std::map<std::string, Result> want;
  for (const auto& [name, sound] : plans_to_damage()) want.emplace(name, wanted(sound));
  int all_named = 0, all_harmless = 0;
  for (const Damage& d : damages()) {
    int named = 0, harmless = 0;
    std::string first;
    for (const auto& [name, sound] : plans_to_damage()) {
      PlacedGraph plan = sound;
      try {
        d.act(plan);
      } catch (const InternalError&) {
        continue;  // it has nothing to spoil
      } catch (const std::out_of_range&) {
        continue;
      }
      const std::vector<std::string> found = verify(plan, reference_kernels());
      if (!found.empty()) {
        ++named;
        if (name == d.plan) first = found[0];
      } else {
        ++harmless;
        expect_runs_free_of_races(simulated(plan), want.at(name), name + ": " + d.name, 4);
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(named, 0) << d.name;
    std::cout << d.name << " | " << named << " plans" << (harmless ? ", without effect in " + std::to_string(harmless) : "") << " | " << first << "\n";
    all_named += named, all_harmless += harmless;
  }
  std::cout << damages().size() << " kinds of damage, named " << all_named << " times in " << plans_to_damage().size() << " plans; " << all_harmless << " times a plan of the same results\n";
}

/// Whether a file can say it: all that is named is there.
bool has_what_it_names(const PlacedGraph& p) {
  auto in = [](auto number, const auto& list) { return number >= 0 && static_cast<std::size_t>(number) < list.size(); };
  bool out = p.towers > 0 && p.towers < 1000;
  for (const PlanNode& n : p.nodes) {
    for (ValueIndex v : n.inputs) out = out && (v == -1 || in(v, p.values));
    for (ValueIndex v : n.outputs) out = out && in(v, p.values);
    for (const Wait& w : n.waits) out = out && in(w.value, p.values);
    for (auto [u, variable] : n.donates) out = out && in(u, p.values) && in(variable, p.values);
    for (int d : n.holders) out = out && in(d, p.cluster.devices);
    out = out && !n.inputs.empty() == !(n.op == kInput || n.op == kVariable || (n.def && n.def->inputs.empty())) && !n.outputs.empty();
    out = out && n.user >= 0 && n.user < p.graph->size() && (n.scope == Scope::tower ? in(n.vector, p.vectors) : n.owners == -1 || in(n.owners, p.vectors));
  }
  for (const auto& v : p.vectors) {
    out = out && v.size() == static_cast<std::size_t>(p.towers);
    for (int d : v) out = out && (d == -1 || in(d, p.cluster.devices));
  }
  for (const PlanStream& s : p.streams) out = out && in(s.device, p.cluster.devices);
  for (const DeviceGroup& g : p.groups)
    for (int d : g.devices) out = out && in(d, p.cluster.devices);
  for (std::size_t v = 0; v < p.values.size(); ++v)
    out = out && in(p.values[v].maker, p.nodes) && std::count(p.nodes[static_cast<std::size_t>(p.values[v].maker)].outputs.begin(), p.nodes[static_cast<std::size_t>(p.values[v].maker)].outputs.end(), static_cast<int>(v)) == 1;
  for (const auto& [name, v] : p.fetches) out = out && in(v, p.values);
  for (auto [variable, u] : p.updates) out = out && in(variable, p.values) && in(u, p.values);
  return out;
}

TEST(Damages, that_a_file_can_have_are_told_apart_by_diff_and_crash_no_picture) {
  int files = 0;
  std::vector<std::string> unseen;
  for (const Damage& d : damages()) {
    const PlacedGraph& sound = plans_to_damage().at(d.plan);
    PlacedGraph plan = sound;
    d.act(plan);
    if (!has_what_it_names(plan) || d.name == std::string("no reason")) continue;  // reasons decide nothing
    try {
      plan = read_plan(write_plan(plan), "plan.json", plan.graph->shared_ops());
    } catch (const UserError&) {
      continue;
    } catch (const InternalError&) {
      continue;  // no file has names that are unlike their nodes'
    }
    ++files;
    if (diff_plans(sound, plan).empty() && write_plan(plan) != write_plan(sound)) unseen.push_back(d.name);
    std::optional<Forecast> f;
    try {
      f = forecast(plan);
    } catch (const UserError&) {
    }
    try {
      EXPECT_FALSE(draw_svg(plan, {.forecast = f ? &*f : nullptr}).empty()) << d.name;
    } catch (const UserError&) {  // what moves from where cannot be said of it
    }
  }
  EXPECT_THAT(unseen, testing::IsEmpty());
  EXPECT_GT(files, 100);
}

TEST(Verify, holds_a_result_to_one_value_or_to_what_each_tower_has_as_its_name_says) {
  auto graph = std::make_shared<const Graph>(training_graph(net("decay")));
  PlacedGraph plan = place(graph, to_strategy(Towers{.devices = sims(2), .threads = 1}), sim_cluster(2), 6, {.fetches = fetches_of(*graph)});
  ASSERT_EQ(verify(plan), std::vector<std::string>());
  for (PlanNode& n : plan.nodes) {
    if (n.op != kFetch || n.attributes.text("how") != "sum") continue;
    n.attributes.set("how", "stack");
    Shape& shape = plan.values[static_cast<std::size_t>(n.outputs[0])].type.shape;
    shape.insert(shape.begin(), Dim(2));
  }
  EXPECT_THAT(verify(plan), testing::Contains(testing::HasSubstr("is what each tower has, but its name means one value")));
}

TEST(Damages, of_the_relation_of_a_wait_are_said_where_a_forecast_walks_them) {
  const PlacedGraph& sound = plans_to_damage().at("towers");
  for (int relation = Wait::kOwn; relation <= Wait::kReaders; ++relation)
    for (std::size_t i = 0; i < sound.nodes.size(); ++i)
      for (std::size_t k = 0; k < sound.nodes[i].waits.size(); ++k) {
        PlacedGraph plan = sound;
        plan.nodes[i].waits[k].relation = static_cast<Wait::Relation>(relation);
        try {
          (void)forecast(plan);
        } catch (const UserError& e) {
          EXPECT_THAT(e.what(), testing::AnyOf(testing::StartsWith("unbound: "), testing::StartsWith("stuck: ")));
        }
      }
}

// ---------------------------------------------------------------- chance

/// Numbers of a plan changed at random: the verifier must neither crash nor let a race pass.
class Scrambler {
 public:
  Scrambler(PlacedGraph& plan, std::uint64_t seed) : p_(plan), rng_(seed) {}

  std::string act() {
    PlanNode& n = pick(p_.nodes);
    switch (rng_() % 14) {
      case 0: return change(n.order), "order of " + n.name;
      case 1: return change(n.epoch), "epoch of " + n.name;
      case 2: return change(n.vector), "vector of " + n.name;
      case 3: return change(n.owners), "owners of " + n.name;
      case 4: return n.phases.empty() ? "" : (change(pick(n.phases)), "phase of " + n.name);
      case 5: return n.inputs.empty() ? "" : (change(pick(n.inputs)), "input of " + n.name);
      case 6: return n.outputs.empty() ? "" : (change(pick(n.outputs)), "output of " + n.name);
      case 7: return n.waits.empty() ? "" : (change(pick(n.waits).value), "wait of " + n.name);
      case 8: return n.waits.empty() ? "" : (pick(n.waits).relation = static_cast<Wait::Relation>(rng_() % 6), "relation of " + n.name);
      case 9: return slot(n.by_class) ? "class slot of " + n.name : "";
      case 10: return slot(n.by_group) ? "group slot of " + n.name : "";
      case 11: return n.scope = static_cast<Scope>(rng_() % 4), "scope of " + n.name;
      case 12: return stream();
      default: return table();
    }
  }

 private:
  template <class T>
  T& pick(std::vector<T>& all) { return all[rng_() % all.size()]; }
  template <class T>
  void change(T& x) {
    const std::int64_t values[] = {-1, 0, 1, 2, -2, 1 << 20, static_cast<std::int64_t>(x) + 1, static_cast<std::int64_t>(x) - 1, static_cast<std::int64_t>(rng_() % 100), 64 * static_cast<std::int64_t>(rng_() % 64)};
    x = static_cast<T>(values[rng_() % std::size(values)]);
  }
  bool slot(Variants& variants) {
    if (variants.empty()) return false;
    Variant& v = variants[rng_() % variants.size()];
    if (rng_() % 8 == 0) return change(v.scratch_bytes), true;
    if (v.outputs.empty()) return false;
    Slot& s = pick(v.outputs);
    if (rng_() % 4 == 0) s.region = static_cast<Slot::Region>(rng_() % 6);
    else if (rng_() % 3 == 0) change(s.stride);
    else change(s.offset);
    return true;
  }
  std::string stream() {
    PlanStream& s = pick(p_.streams);
    switch (rng_() % 4) {
      case 0: return change(s.device), "device of a stream";
      case 1: return change(s.slots), "slots of a stream";
      case 2: return change(s.thread), "thread of a stream";
    }
    if (s.entries.empty()) return "";
    StreamEntry& e = pick(s.entries);
    int* fields[] = {&e.tower, &e.epoch, &e.phase, &e.slot, &e.after};
    return change(*fields[rng_() % 5]), "entry of a stream";
  }
  std::string table() {
    switch (rng_() % 8) {
      case 0: return p_.vectors.empty() ? "" : (change(pick(pick(p_.vectors))), "a vector");
      case 1: return change(pick(p_.groups).region), "a region";
      case 2: return change(pick(p_.groups).state), "a state";
      case 3: return change(pick(pick(p_.groups).devices)), "a group";
      case 4: return change(pick(p_.frames).kept), "a frame";
      case 5: return p_.classes.empty() ? "" : (change(pick(pick(p_.classes).towers)), "a class");
      case 6: return p_.fetches.empty() ? "" : (change(pick(p_.fetches).second), "a fetch");
      default: return p_.updates.empty() ? "" : (change(pick(p_.updates).second), "an update");
    }
  }

  PlacedGraph& p_;
  std::mt19937_64 rng_;
};

TEST(Verify, of_a_plan_changed_at_random_never_crashes_and_what_it_accepts_runs_free_of_races) {
  int found = 0, accepted = 0;
  for (const auto& [name, sound] : plans_to_damage()) {
    Result want = wanted(sound);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      PlacedGraph plan = sound;
      const std::string what = Scrambler(plan, seed).act();
      if (what.empty()) continue;
      if (!verify(plan).empty()) {
        ++found;
        continue;
      }
      ++accepted;
      Program program(std::make_shared<const PlacedGraph>(simulated(plan)), reference_kernels());
      for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
      Runner runner(program);
      Tensors feeds = feeds_for(*plan.graph, plan.batch);
      for (const auto& [variable, value] : state_for(*plan.graph)) program.set_state(variable, value);
      for (std::uint64_t order = 0; order < 5; ++order) {
        Watcher watcher(program.bound());
        Outcome o = runner.run_interleaved(views(feeds), at_random(order), &watcher);
        ASSERT_FALSE(o.error) << name << " seed " << seed << ": " << what;
        ASSERT_TRUE(watcher.found().empty()) << name << " seed " << seed << ": " << what << ": " << watcher.found()[0];
        if (order > 0) continue;
        for (const auto& [variable, value] : want.state) ASSERT_TRUE(program.state(variable) == value) << name << " seed " << seed << ": " << what << ": " << variable;
        for (const auto& [fetch, value] : want.fetched) ASSERT_TRUE(o.fetched.at(fetch) == value) << name << " seed " << seed << ": " << what << ": " << fetch;
      }
    }
  }
  std::cout << found << " changes objected to, " << accepted << " harmless\n";
  EXPECT_GT(found, accepted / 2);
}

}  // namespace
}  // namespace belfry::test
