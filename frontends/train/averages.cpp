#include <belfry/frontends/train/averages.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/ops/optimizer/optimizer.h>

namespace belfry {

void check_averages(const Session& session) {
  const Graph& g = session.training_graph();
  const std::vector<NodeId> variables = g.variables();
  if (std::none_of(variables.begin(), variables.end(), [&](NodeId id) { return g.find_node(average_of(g.node(id).name)) >= 0; }))
    throw UserError(fmt::format("the graph '{}' keeps no moving averages of its variables; give its optimizer an average_decay", g.name));
}

AveragesInPlace::AveragesInPlace(Session& session) : session_(session) {
  check_averages(session);
  State averages;
  const State all = session.state();
  for (const auto& [name, value] : all) {
    auto average = all.find(average_of(name));
    if (average == all.end()) continue;
    before_.insert_or_assign(name, value);
    before_.insert_or_assign(average->first, average->second);
    averages.insert_or_assign(name, average->second);
    averages.insert_or_assign(average->first, average->second);
  }
  session.load_state(averages);
}

AveragesInPlace::~AveragesInPlace() {
  try {
    session_.load_state(before_);
  } catch (const std::exception&) {  // the session was moved from, or is at work in another thread: a destructor has nobody to tell
  }
}

}  // namespace belfry
