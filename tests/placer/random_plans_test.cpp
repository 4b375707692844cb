// Random plans: the verifier finds nothing, their files say all of them, they come to an end, and those that run have the interpreter's bits.
// BELFRY_RANDOM_PLANS and BELFRY_SEED set how many and from which seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/json/plan_file.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/over_memory.h>

#include "damage.h"
#include "live_bytes.h"
#include "places.h"
#include "plans.h"
#include "random_plan.h"

namespace belfry::test {
namespace {

/// What fails ends the property; rapidcheck then looks for a smaller draw that fails as well.
void demand(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void demand_same_text(const std::string& want, const std::string& got, const std::string& what) {
  if (want == got) return;
  const auto at = static_cast<std::size_t>(std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first - want.begin());
  const std::size_t from = at < 150 ? 0 : at - 150;
  demand(false, fmt::format("{} as another text:\n{}\n--- not ---\n{}", what, got.substr(std::min(from, got.size()), 300), want.substr(from, 300)));
}

/// Nothing but that it does not fit, and that only where it does not.
void demand_sound(const PlacedGraph& plan) {
  const std::vector<std::string> found = verify(plan);
  const bool over = !over_memory(plan).empty();
  demand(over == !found.empty(), found.empty() ? "the verifier does not see that it does not fit" : "the verifier says " + found[0]);
  for (const std::string& f : found) demand(f.starts_with("memory: "), "the verifier says " + f);
}

/// Written, read, written again; derived anew from its decisions alone.
void demand_whole_file(const RandomPlan& r) {
  const std::string text = write_plan(r.plan);
  const PlacedGraph again = read_plan(text, "plan.json", r.graph->shared_ops());
  demand_same_text(text, write_plan(again), "read back, it is written");
  demand(again.arithmetic_hash == r.plan.arithmetic_hash && arithmetic_hash(again) == r.plan.arithmetic_hash, "read back, it has another arithmetic hash");
  demand_sound(again);
  const PlanRequest request = request_of(again);
  PlaceOptions o{.fetches = request.fetches, .updates = request.updates, .kernels = r.options.kernels, .groups = [&](const Graph&) { return request.groups; }, .accumulate_all = r.options.accumulate_all};
  demand_same_text(text, write_plan(place(again.graph, placement_of(again), again.cluster, o)), "placed anew from its decisions, it is written");
}

/// The interpreter's bits, under the eyes of a watcher in a random order, and by threads.
void demand_bits(const RandomPlan& r, std::uint64_t order) {
  Program program(std::make_shared<const PlacedGraph>(r.plan), reference_kernels());
  for (int t = 0; t < static_cast<int>(program.threads().size()); ++t) program.prepare_thread(t);
  const Tensors start = state_for(*r.graph), feeds = feeds_for(*r.graph, r.plan.batch);
  TowerGraph tg = expand(r.graph, {.towers = r.plan.towers, .batch = r.plan.batch, .combine = r.plan.combine, .threads = 1, .updates = r.options.updates, .fetches = r.options.fetches,
                                   .groups = r.options.groups ? r.options.groups(*r.graph) : std::vector<FusionGroup>{}});
  const Result want = run_towers(tg, feeds, start);
  Runner runner(program);
  for (bool interleaved : {true, false}) {
    std::set<std::string> held;
    for (const StateBuffer& s : program.bound().state) held.insert(r.plan.nodes[static_cast<std::size_t>(s.node)].name);
    for (const std::string& name : held) program.set_state(name, start.at(name));
    Watcher watcher(program.bound());
    Outcome got = interleaved ? runner.run_interleaved(views(feeds), at_random(order), &watcher) : runner.run(views(feeds));
    if (got.error) std::rethrow_exception(got.error);
    demand(watcher.found().empty(), watcher.found().empty() ? "" : "the watcher sees " + watcher.found()[0]);
    for (const auto& [name, value] : want.fetched) demand(got.fetched.at(name) == value, "other bits in the fetch " + name);
    for (const auto& [name, value] : want.state)
      if (held.contains(name)) demand(program.state(name) == value && program.holders_agree(name), "other bits in the variable " + name);
  }
}

struct Counts {
  int plans = 0, ran = 0, refused = 0, over = 0, once = 0;
  std::map<std::string, int> strategies, refusals;
};

/// A refusal without names and numbers of its own.
std::string kind_of(const std::string& text) {
  std::string out;
  bool quoted = false;
  for (char c : text.substr(0, text.find('\n'))) {
    if (c == '\'' || c == '"') quoted = !quoted;
    if (!quoted && !(c >= '0' && c <= '9')) out += c;
  }
  return out.substr(0, 80);
}

void property(Counts& counts, int every) {
  // While a failure is made smaller, a draw may get what another of a wider range had.
  const auto draw = [](const char* what, int n) { return std::clamp(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, n)).as(what), 0, n - 1); };
  const bool run = draw("run", every) == 0;
  const auto order = static_cast<std::uint64_t>(draw("order", 1000));
  RandomPlan r;
  try {
    r = random_plan(draw, run);
  } catch (const UserError& e) {
    ++counts.refused;
    ++counts.refusals[kind_of(e.what())];
    RC_DISCARD(e.what());
  }
  RC_TAG(r.what);
  try {
    demand_sound(r.plan);
    demand_whole_file(r);
    const std::string unlike = unlike_live_bytes(r.plan, forecast(r.plan));
    demand(unlike.empty(), unlike);
    const BoundPlan bound(r.plan);
    for (const Chooser& choose : {in_turn(), at_random(order)})
      if (std::string found = Places(bound).run(choose); !found.empty()) demand(false, "with places that hold one value: " + found);
    const bool over = !over_memory(r.plan).empty();
    if (run && !over) demand_bits(r, order);
    ++counts.plans, counts.ran += run && !over, counts.over += over, counts.once += !bound.once.empty();
    ++counts.strategies[r.plan.placement.strategy];
  } catch (const std::exception& e) {
    throw std::runtime_error(r.what + ": " + e.what());
  }
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomPlans, are_sound_are_their_files_and_end_with_places_of_one_value) {
  constexpr int kEvery = 20;  // is run
  rc::detail::TestParams params;
  params.maxSuccess = static_cast<int>(setting("BELFRY_RANDOM_PLANS", 400));
  params.seed = setting("BELFRY_SEED", 1);
  params.maxDiscardRatio = 2;
  Counts counts;
  const auto result = rc::detail::checkTestable([&] { property(counts, kEvery); }, rc::detail::TestMetadata{"random_plans", "random plans"}, params);
  std::ostringstream said;
  rc::detail::printResultMessage(result, said);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << said.str();
  std::cout << fmt::format("{} plans from seed {}, {} of them ran, {} do not fit, {} make something once; {} draws were refused\n", counts.plans, params.seed, counts.ran, counts.over, counts.once, counts.refused);
  for (const auto& [name, n] : counts.strategies) std::cout << fmt::format("  {:5} {}\n", n, name);
  for (const auto& [why, n] : counts.refusals) std::cout << fmt::format("  {:5} refused: {}\n", n, why);
}

/// What running a spoiled plan says, in some orders.
std::string said_of(const char* plan, const char* damage) {
  PlacedGraph p = plans_to_damage().at(plan);
  for (const Damage& d : damages())
    if (d.name == damage) d.act(p);
  const BoundPlan bound(p);
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    if (std::string found = Places(bound).run(at_random(seed)); !found.empty()) return found;
  return "";
}

TEST(Places, are_found_full_or_empty_where_a_plan_is_spoiled) {
  EXPECT_EQ(said_of("gpipe", ""), "");
  EXPECT_THAT(said_of("gpipe", "one slot for two in flight"), testing::HasSubstr("finds its place full of '"));
  EXPECT_THAT(said_of("towers", "wait on a shared value lost"), testing::HasSubstr("finds nothing in the place of '"));
  EXPECT_THAT(said_of("towers", "waits in a ring"), testing::HasSubstr("waiting for each other: "));
}

}  // namespace
}  // namespace belfry::test
