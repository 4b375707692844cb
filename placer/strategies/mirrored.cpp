#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division Mirrored::divide(const Graph&, const Cluster&) const {
  return {towers ? towers : static_cast<int>(devices.size()), combine, threads, PhaseOrder::by_tower};
}

Rules Mirrored::assign(const TowerGraph&, const Cluster&) const {
  return {{"tower_*/**", devices, "a tower per device"}, {"**", devices, "mirrored on every device"}};
}

}  // namespace belfry
