#include <belfry/frontends/train/averages.h>

#include <fmt/format.h>

#include <belfry/ops/optimizer/optimizer.h>

namespace belfry {

AveragesInPlace::AveragesInPlace(Session& session) : session_(session) {
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
  if (averages.empty()) throw UserError(fmt::format("the graph '{}' keeps no moving averages of its variables; give its optimizer an average_decay", session.graph().name));
  session.load_state(averages);
}

AveragesInPlace::~AveragesInPlace() { session_.load_state(before_); }

}  // namespace belfry
