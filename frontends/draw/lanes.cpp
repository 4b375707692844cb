#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/draw/diagram_internal.h>

namespace belfry::picture {

namespace {

std::string tower_names(const std::vector<int>& towers) {
  if (towers.size() == 1) return fmt::format("tower {}", towers[0]);
  const bool run = towers.back() - towers.front() + 1 == static_cast<int>(towers.size());
  if (run) return fmt::format("towers {}–{}", towers.front(), towers.back());
  return fmt::format("tower {} and {} like it", towers[0], towers.size() - 1);
}

/// What sits on a device: equal ones may stand for each other.
struct Contents {
  std::string kind;
  std::int64_t memory = 0;
  std::vector<int> held;                                    // classes of holder lists that name it
  std::map<std::vector<int>, std::vector<int>> towers;      // by the vectors that put them here
  auto key() const {
    std::vector<std::pair<std::vector<int>, std::size_t>> counts;
    for (const auto& [vectors, all] : towers) counts.emplace_back(vectors, all.size());
    return std::tuple(kind, memory, held, counts);
  }
};

std::vector<Contents> contents_of(const PlacedGraph& plan) {
  std::vector<Contents> out(plan.cluster.devices.size());
  std::map<std::vector<int>, int> lists;
  std::set<int> used;
  for (const PlanNode& n : plan.nodes) {
    if (n.scope == Scope::tower) used.insert(n.vector);
    else if (auto [at, fresh] = lists.try_emplace(n.holders.get(), static_cast<int>(lists.size())); fresh)
      for (int d : n.holders) out[static_cast<std::size_t>(d)].held.push_back(at->second);
  }
  for (int t = 0; t < plan.present(); ++t) {
    std::map<int, std::vector<int>> here;
    for (int v : used)
      if (int d = plan.vectors[static_cast<std::size_t>(v)][static_cast<std::size_t>(t)]; d >= 0) here[d].push_back(v);
    for (const auto& [d, vectors] : here) out[static_cast<std::size_t>(d)].towers[vectors].push_back(t);
  }
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d].kind = plan.cluster.devices[d].id.kind;
    out[d].memory = plan.cluster.devices[d].memory;
  }
  return out;
}

}  // namespace

Lanes lanes_of(const PlacedGraph& plan, bool fold) {
  const std::vector<Contents> contents = contents_of(plan);
  Lanes out;
  std::map<decltype(Contents().key()), int> columns;
  std::map<std::pair<int, std::vector<int>>, int> lanes;  // column, vectors (fold) or tower
  std::vector<std::vector<int>> towers;                   // per lane
  auto lane = [&](int column, std::vector<int> key, int device, int tower) {
    auto [at, fresh] = lanes.try_emplace({column, std::move(key)}, static_cast<int>(out.lanes.size()));
    if (fresh) {
      out.lanes.push_back({"", column, 1, false, 0, 0});
      out.shown.emplace_back(device, tower);
      towers.emplace_back();
    }
    out.lane_of[{device, tower}] = at->second;
    if (tower >= 0) towers[static_cast<std::size_t>(at->second)].push_back(tower);
  };
  std::vector<std::size_t> devices(contents.size());
  for (std::size_t d = 0; d < devices.size(); ++d) devices[d] = d;
  std::stable_partition(devices.begin(), devices.end(), [&](std::size_t d) { return static_cast<int>(d) == plan.cluster.host(); });  // data come from there
  for (std::size_t d : devices) {
    const Contents& c = contents[d];
    if (c.held.empty() && c.towers.empty()) continue;
    int column = static_cast<int>(out.columns.size());
    if (fold) column = columns.try_emplace(c.key(), column).first->second;
    if (column == static_cast<int>(out.columns.size())) out.columns.emplace_back();
    out.columns[static_cast<std::size_t>(column)].devices.push_back(static_cast<int>(d));
    const int device = static_cast<int>(d);
    // Where there is one tower, what the device does for all stands with it.
    const bool together = c.towers.size() == 1 && c.towers.begin()->second.size() == 1;
    auto key_of = [&](const std::vector<int>& vectors, int tower) { return together ? std::vector<int>{-1} : fold ? vectors : std::vector<int>{tower}; };
    if (!c.held.empty()) lane(column, {-1}, device, -1);
    for (const auto& [vectors, all] : c.towers)
      for (int t : all) lane(column, key_of(vectors, t), device, t);
  }
  // Lanes of a column side by side, in the order in which columns were found.
  std::vector<int> order(out.lanes.size()), place(out.lanes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return out.lanes[static_cast<std::size_t>(a)].column < out.lanes[static_cast<std::size_t>(b)].column; });
  Lanes sorted{out.columns, {}, {}, {}};
  for (int old : order) {
    place[static_cast<std::size_t>(old)] = static_cast<int>(sorted.lanes.size());
    Lane l = out.lanes[static_cast<std::size_t>(old)];
    const std::vector<int>& all = towers[static_cast<std::size_t>(old)];
    l.name = plan.present() == 1 ? "" : all.empty() ? "for all towers" : tower_names(all);
    l.times = std::max<int>(1, static_cast<int>(all.empty() ? out.columns[static_cast<std::size_t>(l.column)].devices.size() : all.size()));
    l.shared = all.empty();
    sorted.lanes.push_back(std::move(l));
    sorted.shown.push_back(out.shown[static_cast<std::size_t>(old)]);
  }
  for (const auto& [key, lane_number] : out.lane_of) sorted.lane_of[key] = place[static_cast<std::size_t>(lane_number)];
  return sorted;
}

int Lanes::drawn(int tower, int device) const {
  const int lane = lane_of.at({device, tower});
  const auto [of, t] = shown[static_cast<std::size_t>(lane)];
  // Only where there is one tower does a lane hold what is the tower's and what is not.
  return of == device && (t == tower || t == -1 || tower == -1) ? lane : -1;
}

std::int64_t count_instances(const PlacedGraph& plan) {
  std::vector<std::int64_t> per_vector;
  for (const std::vector<int>& v : plan.vectors)
    per_vector.push_back(std::count_if(v.begin(), v.begin() + std::min<std::ptrdiff_t>(plan.present(), static_cast<std::ptrdiff_t>(v.size())), [](int d) { return d >= 0; }));
  std::int64_t out = 0;
  for (const PlanNode& n : plan.nodes) out += n.scope == Scope::tower ? per_vector[static_cast<std::size_t>(n.vector)] : static_cast<std::int64_t>(n.holders.size());
  return out;
}

}  // namespace belfry::picture
