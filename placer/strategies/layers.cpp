#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/structural.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

/// Variables in order of first use are cut into equal counts; a node follows its variable or furthest forward input.
std::vector<int> stages_of(const Graph& g, int count) {
  std::vector<NodeId> trained;
  for (NodeId id : g.variables())
    if (g.node(id).of < 0) trained.push_back(id);
  std::vector<int> stage(static_cast<std::size_t>(g.size()), -1);
  for (std::size_t i = 0; i < trained.size(); ++i) stage[static_cast<std::size_t>(trained[i])] = static_cast<int>(i * static_cast<std::size_t>(count) / trained.size());
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    int& mine = stage[static_cast<std::size_t>(id)];
    if (mine >= 0) continue;
    if (n.of >= 0 && n.of < id) {
      mine = stage[static_cast<std::size_t>(n.of)];
      continue;
    }
    for (ValueId v : n.inputs)
      if (v.valid()) mine = std::max(mine, stage[static_cast<std::size_t>(v.node)]);
    mine = std::max(mine, 0);
  }
  return stage;
}

}  // namespace

Division Layers::divide(const Graph&, const Cluster&) const {
  if (replicas < 1 || devices.size() % static_cast<std::size_t>(replicas)) throw UserError(fmt::format("{} devices cannot be shared by {} replicas", devices.size(), replicas));
  if (chunks < 1 || (chunks > 1 && order != PhaseOrder::interleaved)) throw UserError(fmt::format("{} chunks a device need order=interleaved", chunks));
  return {towers, combine, threads, order};
}

Rules Layers::assign(const TowerGraph& tg, const Cluster&) const {
  const Graph& g = *tg.graph;
  auto count = devices.size() / static_cast<std::size_t>(replicas);
  auto at = [&](std::size_t s) {
    std::vector<DeviceId> out;
    for (std::size_t r = 0; r < static_cast<std::size_t>(replicas); ++r) out.push_back(devices[r * count + s]);
    return out;
  };
  bool requested = std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.device.has_value(); });
  if (requested) return {{"**", at(0), "no device was requested: the first stage"}};
  Rules out;
  std::vector<int> stage = stages_of(g, static_cast<int>(count) * chunks);
  for (NodeId id = 0; id < g.size(); ++id) {
    auto s = static_cast<std::size_t>(stage[static_cast<std::size_t>(id)]);
    out.push_back({g.node(id).name, at(s % count), fmt::format("stage {}", s)});
  }
  out.push_back({"**", at(count - 1), "last stage"});
  return out;
}

}  // namespace belfry
