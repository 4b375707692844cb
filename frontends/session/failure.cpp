#include <belfry/frontends/session/failure_internal.h>

#include <algorithm>
#include <new>
#include <string>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/ops/all_ops.h>

namespace belfry {

namespace {

/// "[prelu] its reference failed: …; node 'prelu' (net.cpp:7)" where the node is of an op that does not come with Belfry, else nothing.
std::string of_own_op(const Outcome& outcome, const PlacedGraph& plan, std::string what) {
  const auto at = std::find_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) { return n.name == outcome.failed_node; });
  if (at == plan.nodes.end() || at->user < 0) return {};
  const Node& node = plan.graph->node(at->user);
  if (at->inserted || node.op->name != at->op || standard_ops().find(at->op)) return {};
  what.resize(std::min(what.size(), what.find(" (a bug in Belfry")));
  return fmt::format("[{}] its reference failed: {}; node '{}'{}", at->op, what, node.name, node.source.aside());
}

}  // namespace

void rethrow(const Outcome& outcome, const PlacedGraph& plan) {
  const std::string where = outcome.failed_node.empty() ? "" : fmt::format("; while running '{}' on {}", outcome.failed_node, outcome.failed_device);
  try {
    std::rethrow_exception(outcome.error);
  } catch (const UserError& e) {
    throw UserError(e.what() + where);
  } catch (const DeviceError& e) {
    throw DeviceError(e.what() + where + (outcome.way_out.empty() ? "" : "; " + outcome.way_out));
  } catch (const std::exception& e) {
    if (const std::string own = of_own_op(outcome, plan, e.what()); !own.empty()) throw UserError(own + where);
    if (dynamic_cast<const std::bad_alloc*>(&e)) throw UserError("the host has no memory left: beside what the plan needs lie results, feeds and state that was asked for" + where);
    throw InternalError(e.what() + where);
  }
}

}  // namespace belfry
