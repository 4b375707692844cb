#include <belfry/placer/strategies/strategies.h>

namespace belfry {

Division Single::divide(const Graph&, const Cluster&) const { return {towers, combine, threads, PhaseOrder::by_tower}; }
Rules Single::assign(const TowerGraph&, const Cluster&) const { return {{"**", {device}, "single"}}; }

}  // namespace belfry
