#include "ran_as_planned.h"

#include <algorithm>

#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/moves.h>
#include <belfry/graph/plan/once.h>
#include <belfry/graph/structural.h>

#include "plans.h"

namespace belfry::test {

namespace {

using Names = std::vector<std::string>;

std::string step_name(const PlacedGraph& plan, int node, int tower) {
  const std::string& name = plan.nodes[static_cast<std::size_t>(node)].name;
  return tower < 0 ? name : "tower_" + std::to_string(tower) + "/" + name;
}

/// Read off the folded plan, not off what the program made of it.
std::vector<Names> planned_steps(const PlacedGraph& plan) {
  std::vector<int> by_order(plan.nodes.size());
  for (std::size_t i = 0; i < by_order.size(); ++i) by_order[i] = static_cast<int>(i);
  std::sort(by_order.begin(), by_order.end(), [&](int a, int b) { return plan.nodes[static_cast<std::size_t>(a)].order < plan.nodes[static_cast<std::size_t>(b)].order; });
  std::map<int, std::size_t> class_of;
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (int t : plan.classes[c].towers) class_of[t] = c;
  std::vector<Names> out;
  for (const PlanStream& s : plan.streams) {
    Names& names = out.emplace_back();
    for (int i : by_order) {
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
      if (s.name == "main" && n.scope != Scope::tower && !is_there(n) && std::count(n.holders.begin(), n.holders.end(), s.device)) names.push_back(step_name(plan, i, -1));
    }
    for (const StreamEntry& e : s.entries)
      for (int i : by_order) {
        const PlanNode& n = plan.nodes[static_cast<std::size_t>(i)];
        if (n.scope == Scope::tower && n.epoch == e.epoch && n.phases[class_of.at(e.tower)] == e.phase && plan.device_of(n, e.tower) == s.device) names.push_back(step_name(plan, i, e.tower));
      }
  }
  return out;
}

/// The memory space in which an address lies; a feed is the host's.
std::string space_of(const Program& program, const std::byte* address) {
  int space = program.space_of(address);
  return space < 0 ? program.plan().cluster.space(program.plan().cluster.host()) : program.bound().spaces[static_cast<std::size_t>(space)];
}

/// Bytes that the traced launches read at addresses of other memory spaces than their device's, and those that land for them.
std::map<std::pair<std::string, std::string>, std::int64_t> read_over_links(const Program& program, const std::vector<TraceEntry>& trace) {
  std::map<std::pair<std::string, std::string>, std::int64_t> out;
  const Cluster& cluster = program.plan().cluster;
  for (std::size_t d = 0; program.staging() && d < cluster.devices.size(); ++d)
    for (const LandedFeed& f : program.staging()->landing(static_cast<int>(d)).feeds) out[{cluster.space(cluster.host()), cluster.devices[d].space}] += f.past - f.first;
  for (const TraceEntry& e : trace) {
    const Launch& l = program.launches()[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)];
    const PlanNode& n = program.plan().nodes[static_cast<std::size_t>(l.step->node)];
    if (program.queue(e.stream) && reads_landed(program.plan(), n, l.step->device)) continue;
    const std::string& here = program.plan().cluster.space(l.step->device);
    std::vector<std::int64_t> bytes;
    for (const auto& parts : l.step->reads) {
      if (parts.empty() && (n.def || n.op == kFused)) bytes.push_back(0);
      for (const Part& p : parts) bytes.push_back(n.op == kSplit ? l.step->writes[0][0].buffer.type.bytes() : p.buffer.type.bytes());
    }
    for (std::size_t i = 0; i < l.arguments.inputs.size(); ++i)
      if (const std::byte* address = l.arguments.inputs[i]; address && bytes[i])
        if (std::string from = space_of(program, address); from != here) out[{from, here}] += bytes[i];
  }
  return out;
}

}  // namespace

testing::AssertionResult ran_as_planned(const PlacedGraph& plan, const Program& program, const std::vector<TraceEntry>& trace) {
  std::vector<Names> want = planned_steps(plan), got(program.bound().streams.size());
  std::map<std::pair<int, int>, const TraceEntry*> at;
  for (const TraceEntry& e : trace) {
    const Step& step = program.bound().streams[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)];
    got[static_cast<std::size_t>(e.stream)].push_back(step_name(program.plan(), step.node, step.tower));
    at[{e.stream, e.index}] = &e;
  }
  if (want.size() != got.size()) return testing::AssertionFailure() << got.size() << " streams ran, planned are " << want.size();
  for (std::size_t s = 0; s < want.size(); ++s)
    for (std::size_t k = 0; k < std::max(want[s].size(), got[s].size()); ++k) {
      std::string planned = k < want[s].size() ? want[s][k] : "nothing", ran = k < got[s].size() ? got[s][k] : "nothing";
      if (planned != ran) return testing::AssertionFailure() << "stream " << s << " ran " << ran << " as its step " << k << ", planned is " << planned;
    }
  for (const TraceEntry& e : trace)
    for (const StepWait& w : program.bound().streams[static_cast<std::size_t>(e.stream)][static_cast<std::size_t>(e.index)].waits)
      // A device's clock is not the host's.
      if (!program.queue(w.stream) && !program.queue(e.stream) && at.at({w.stream, w.count - 1})->end_ns > e.begin_ns)
        return testing::AssertionFailure() << "step " << e.index << " of stream " << e.stream << " began before what it waits for had ended";
  std::map<std::pair<std::string, std::string>, std::int64_t> planned, read = read_over_links(program, trace);
  for (const LinkLoad& l : link_bytes(plan)) planned[{l.from, l.to}] = l.bytes;
  for (auto& [link, bytes] : planned) read.try_emplace(link, 0);
  for (auto& [link, bytes] : read)
    if (planned[link] != bytes) return testing::AssertionFailure() << bytes << " bytes went from " << link.first << " to " << link.second << ", planned are " << planned[link];
  std::map<std::string, std::int64_t> memory;
  std::vector<DeviceBytes> taken = device_bytes(plan);
  for (std::size_t d = 0; d < taken.size(); ++d) memory[plan.cluster.devices[d].space] += taken[d].total();
  for (std::size_t s = 0; s < program.bound().spaces.size(); ++s)
    if (memory[program.bound().spaces[s]] != program.allocated(static_cast<int>(s)))
      return testing::AssertionFailure() << program.bound().spaces[s] << " has " << program.allocated(static_cast<int>(s)) << " bytes, planned are " << memory[program.bound().spaces[s]];
  return testing::AssertionSuccess();
}

Tensors trained(const std::shared_ptr<const PlacedGraph>& plan, int steps, const KernelTables& kernels) {
  Program program(plan, kernels);
  Runner runner(program);
  for (const auto& [name, value] : state_for(*plan->graph)) program.set_state(name, value);
  for (int k = 0; k < steps; ++k) {
    Tensors feeds = feeds_for(*plan->graph, plan->batch, static_cast<std::uint64_t>(k));
    if (Outcome o = runner.run(views(feeds), {.trace = k == steps - 1}); o.error) std::rethrow_exception(o.error);
  }
  EXPECT_TRUE(ran_as_planned(*plan, program, runner.trace()));
  Tensors out;
  for (NodeId id : plan->graph->variables()) {
    const std::string& name = plan->graph->node(id).name;
    out.emplace(name, program.state(name));
    EXPECT_TRUE(program.holders_agree(name)) << name;
  }
  return out;
}

}  // namespace belfry::test
