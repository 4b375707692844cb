#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/predict_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/json/values.h>
#include <belfry/frontends/session/calibration.h>
#include <belfry/frontends/session/compare.h>
#include <belfry/ops/random/random.h>
#include <belfry/placer/diff.h>

namespace belfry {

namespace {

struct CompareArguments {
  std::string a, b, feed, state, state_b;
  std::int64_t steps = 1;
  std::uint64_t seed = 0;
  bool json = false;
};

std::string json_of(const Comparison& c, const PlacedGraph& a, const PlacedGraph& b) {
  std::string out = fmt::format("{{\"same_bits\": {}, \"steps\": {}, \"values\": {}, \"bytes\": {}, \"alone\": {}, \"apart\": {}, \"towers\": [{}, {}], \"threads\": [{}, {}], \"arithmetic_hash\": {}, \"variables\": {}", c.same_bits(), c.steps, c.values, c.bytes, c.alone,
                                json_texts(c.apart), a.towers, b.towers, a.threads, b.threads, json_texts({c.first_arithmetic, c.second_arithmetic}), json_texts({c.first_hash, c.second_hash}));
  if (const auto& d = c.difference)
    out += fmt::format(", \"difference\": {{\"step\": {}, \"node\": {}, \"tower\": {}, \"value\": {}, "
                       "\"devices\": {}, \"elements\": {}, \"first_element\": {}, \"a\": {}, \"b\": {}, \"ulps\": {}, \"types\": {}}}",
                       d->step, json_text(d->node), d->tower, json_text(d->value),
                       json_texts({d->first_device, d->second_device}), d->elements, d->first_element, json_real(d->a), json_real(d->b), d->ulps, json_text(d->types));
  return out + "}\n";
}

State initial_state(const Graph& graph, std::uint64_t seed, const std::string& file) {
  State out;
  for (NodeId id : graph.variables()) out.insert_or_assign(graph.node(id).name, initial_value(graph.node(id), seed));
  if (!file.empty())
    for (auto& [name, value] : load_tensors(file)) {
      if (!out.contains(name)) throw UserError(fmt::format("{}: the graph has no variable '{}'", file, name));
      out.insert_or_assign(name, std::move(value));
    }
  return out;
}

/// Of what is none.
std::string plan_to_take(const std::string& name) {
  const std::filesystem::path in_run = std::filesystem::path(name) / "plan.json";
  std::error_code error;
  return std::filesystem::exists(in_run, error) ? fmt::format("{} lies there", in_run.string()) : "make one with belfry place";
}

void run(const CompareArguments& o, const Library& library) {
  Source a = load_source(o.a, library), b = load_source(o.b, library);
  for (const auto& [source, name] : {std::pair{&a, &o.a}, {&b, &o.b}})
    if (!source->plan) throw UserError(fmt::format("{} is no plan; {}", *name, plan_to_take(*name)));
    else refuse_broken(*source, *name, library);
  if (const UnlikeGraphs unlike = unlike_graphs(*a.graph, *b.graph); unlike.types)
    throw UserError(fmt::format("{} and {} are plans of unlike graphs: {}; place both of one graph, or see how they differ with belfry diff", o.a, o.b, unlike.how));
  say_unlike(*a.plan, o.a, *b.plan, o.b);
  const std::vector<NodeId> inputs = a.graph->inputs();
  const bool in_rows = std::any_of(inputs.begin(), inputs.end(), [&](NodeId id) { return rows_first(*a.graph, a.graph->node(id).types[0]); });
  if (in_rows && a.plan->batch != b.plan->batch)
    throw UserError(fmt::format("{} is of {} rows a step, {} of {}: place both with one --batch", o.a, a.plan->batch, o.b, b.plan->batch));
  if (a.plan->towers != b.plan->towers)
    say(fmt::format("{} has {} tower{}, {} has {}: another arithmetic, in which towers have other rows and sums another order\n", o.a, a.plan->towers, a.plan->towers == 1 ? "" : "s", o.b, b.plan->towers));
  if (a.plan->threads != b.plan->threads)
    say(fmt::format("{} has {} thread{} a tower, {} has {}: another arithmetic, in which sums have another order\n", o.a, a.plan->threads, a.plan->threads == 1 ? "" : "s", o.b, b.plan->threads));
  const std::map<std::string, HostTensor> all = o.feed.empty() ? synthetic_feeds(*a.graph, a.plan->batch * o.steps) : load_tensors(o.feed, a.graph.get());
  say_unread(*a.graph, all, o.feed);
  StepFeeds steps(*a.graph, all, o.steps, a.plan->batch);
  std::vector<Batch> feeds;
  for (std::int64_t k = 0; k < o.steps; ++k) feeds.push_back(steps(k));
  State state = initial_state(*a.graph, o.seed, o.state), second;
  if (!o.state_b.empty()) second = initial_state(*b.graph, o.seed, o.state_b);
  else if (o.state.empty())
    for (NodeId id : a.graph->variables()) {
      const NodeId other = b.graph->find_node(a.graph->node(id).name);
      if (other < 0 || a.graph->node(id).attributes == b.graph->node(other).attributes) continue;
      say(fmt::format("'{}' begins otherwise in {} than in {}: both begin here as the first does\n", a.graph->node(id).name, o.b, o.a));
      break;
    }
  Comparison c = compare(a.plan, b.plan, library, feeds, state, second);
  if (o.json) {
    std::cout << json_of(c, *a.plan, *b.plan);
    if (!c.same_bits()) throw CLI::RuntimeError(1);
    return;
  }
  std::cout << fmt::format("arithmetic hash {}\n", c.same_arithmetic() ? "equal: " + c.first_arithmetic : c.first_arithmetic + " and " + c.second_arithmetic);
  for (const auto& [source, name] : {std::pair{&a, &o.a}, {&b, &o.b}})
    if (std::any_of(source->plan->nodes.begin(), source->plan->nodes.end(), [](const PlanNode& n) { return n.sum == SumWay::ring; }))
      std::cout << fmt::format("{} adds round a ring: it promises its bits to plans with its arithmetic hash alone\n", *name);
  for (const auto& [source, name] : {std::pair{&a, &o.a}, {&b, &o.b}})
    if (std::any_of(source->plan->nodes.begin(), source->plan->nodes.end(), is_nondeterministic)) std::cout << fmt::format("{} has kernels whose bits may differ from run to run\n", *name);
  const std::string compared = fmt::format("{} values of {} steps, {} bytes{}", c.values, c.steps, c.bytes, c.alone ? fmt::format(" ({} more are of one plan alone)", c.alone) : "");
  if (c.same_bits()) {
    std::cout << fmt::format("same bits: {}; variables {} = {}\n", compared, c.first_hash, c.second_hash);
    return;
  }
  if (!c.difference) {
    std::cout << fmt::format("no difference in {}, but {}\n", compared,
                             c.apart.empty() ? fmt::format("the variables differ: {} and {}", c.first_hash, c.second_hash) : fmt::format("these results are not the same value in both: {}", fmt::join(c.apart, ", ")));
    throw CLI::RuntimeError(1);
  }
  const Difference& d = *c.difference;
  const std::string at = fmt::format("step {}, node '{}'{}, value '{}'", d.step, d.node, d.tower < 0 ? "" : fmt::format(" of tower {}", d.tower), d.value);
  if (!d.types.empty()) std::cout << fmt::format("first difference: {}: its shapes are unlike, {}; plans of one batch and as many towers have values to compare\n", at, d.types);
  else
    std::cout << fmt::format("first difference: {} on {} and on {}: {} elements, element {} is {} and {}, at most {} ULP apart\n", at, d.first_device, d.second_device, d.elements,
                             d.first_element, d.a, d.b, d.ulps);
  throw CLI::RuntimeError(1);
}

}  // namespace

void add_compare_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<CompareArguments>();
  CLI::App* verb = app.add_subcommand("compare", "Run two plans on the same feeds: the same bits, or the first node that differs");
  verb->footer("Example: belfry compare one.json two.json --steps 3");
  verb->add_option("a", o->a, "a plan file")->required();
  verb->add_option("b", o->b, "a plan file")->required();
  verb->add_option("--feed", o->feed, "a tensor per input; without it floats are drawn in [0, 1), and all else is 0")->check(is_file());
  verb->add_option("--state", o->state, "variables of both")->check(is_file());
  verb->add_option("--state-b", o->state_b, "variables of the second alone")->check(is_file());
  verb->add_option("--steps", o->steps, "steps of training")->check(whole(1, 1 << 20));
  verb->add_option("--seed", o->seed, "of initial values")->check(whole(0, UINT64_MAX));
  verb->add_flag("--json", o->json, "for machines");
  verb->callback([o, library] { run(*o, *library()); });
}

void add_diff_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<CompareArguments>();
  CLI::App* verb = app.add_subcommand("diff", "What differs between two plans: decisions, then what follows from them");
  verb->footer("Example: belfry diff one.json two.json");
  verb->add_option("a", o->a, "a plan file")->required();
  verb->add_option("b", o->b, "a plan file")->required();
  verb->add_flag("--json", o->json, "for machines");
  verb->callback([o, library] {
    std::shared_ptr<const Library> all = library();
    Source a = load_source(o->a, *all), b = load_source(o->b, *all);
    for (const auto& [source, name] : {std::pair{&a, &o->a}, {&b, &o->b}})
      if (!source->plan) throw UserError(fmt::format("{} is no plan, and diff reads two; {}", *name, plan_to_take(*name)));
    say_unlike(*a.plan, o->a, *b.plan, o->b);
    const PlanDiff diff = diff_plans(*a.plan, *b.plan);
    std::cout << (o->json ? fmt::format("{{\"arithmetic\": {}, \"decisions\": {}, \"follows\": {}}}\n", json_texts(diff.arithmetic), json_texts(diff.decisions), json_texts(diff.follows)) : to_string(diff));
  });
}

}  // namespace belfry
