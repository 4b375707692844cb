#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division Towers::divide(const Graph&, const Cluster&) const {
  return {towers ? towers : static_cast<int>(devices.size()), combine, threads, PhaseOrder::by_tower};
}

Rules Towers::assign(const TowerGraph&, const Cluster&) const {
  return {{"tower_*/**", devices, "a tower per device"}, {"**", {variables}, "shared variables live on " + to_string(variables)}};
}

}  // namespace belfry
