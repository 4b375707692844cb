#include <belfry/placer/cut/cut.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/placer/cut/bounds_internal.h>
#include <belfry/placer/cut/search_internal.h>

namespace belfry::cutting {

namespace {

constexpr int kMostItems = 4096;              // that are searched one by one
constexpr int kIntervals = 512;               // of the first split

/// In the order of how far an item is from the first ones: another way to put them in a row.
Items by_depth(const Items& items) {
  std::vector<int> depth(at(items.count)), order(at(items.count)), same(at(items.count)), rank(at(items.count));
  for (int i = 0; i < items.count; ++i)
    for (int j : items.next[at(i)]) depth[at(j)] = std::max(depth[at(j)], depth[at(i)] + 1);
  std::iota(order.begin(), order.end(), 0);
  std::iota(same.begin(), same.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depth[at(a)] < depth[at(b)]; });
  for (int k = 0; k < items.count; ++k) rank[at(order[at(k)])] = k;
  return merged(items, same, rank);
}

/// A split of some items, as one of items that were merged from the same nodes.
std::optional<Split> carried(const Items& from, const std::optional<Split>& split, const Items& to) {
  if (!split) return {};
  std::size_t nodes = 0;
  for (const auto& all : from.nodes) nodes += all.size();
  std::vector<std::size_t> item(nodes);  // per node
  for (std::size_t i = 0; i < from.nodes.size(); ++i)
    for (int n : from.nodes[i]) item[at(n)] = i;
  Split out{split->value, {}, {}};
  for (int i = 0; i < to.count; ++i) {
    const std::size_t j = item[at(to.nodes[at(i)].front())];
    out.device.push_back(split->device[j]);
    out.part.push_back(split->part[j]);
  }
  return out;
}

/// The best split into intervals of some order.
std::optional<Split> first_split(const Items& items, const std::vector<CutKind>& kinds) {
  std::optional<Split> best;
  auto consider = [&](const Items& order) {
    std::vector<int> groups;
    const Items few = coarsened(order, std::max(kIntervals, 4 * std::accumulate(kinds.begin(), kinds.end(), 0, [](int n, const CutKind& k) { return n + k.count; })), groups);
    std::optional<Split> found = by_intervals(few, kinds);
    if (found && (!best || found->value < best->value)) best = carried(few, found, items);
  };
  consider(items);
  consider(by_depth(items));
  return best;
}

/// Searches where only the items near the cuts of a split are free: the others are one item per part. `settled`: with more free ones it finds no more.
std::optional<Split> refined(const Items& items, const std::vector<CutKind>& kinds, std::optional<Split> split, int free, std::int64_t steps, bool& settled) {
  std::vector<int> order(at(items.count)), rank(at(items.count)), group(at(items.count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return split->part[at(a)] < split->part[at(b)]; });
  auto part = [&](int k) { return split->part[at(order[at(k)])]; };
  int groups = 0;
  for (int first = 0, past = 0; first < items.count; first = past) {
    while (past < items.count && part(past) == part(first)) ++past;
    auto inner = [&](int k) { return k >= first && (first == 0 || k - first >= free) && (past == items.count || past - k > free); };
    for (int k = first; k < past; ++k) group[at(order[at(k)])] = inner(k) && inner(k - 1) ? groups - 1 : groups++;
  }
  std::vector<int> same(at(groups));
  std::iota(same.begin(), same.end(), 0);
  const Items few = merged(items, group, same);
  std::int64_t left = steps;
  Answer found = least_load(few, kinds, carried(items, split, few), left);
  const bool better = found.best && found.best->value < split->value;
  settled = !better && groups == items.count;  // all were free
  return better ? carried(few, found.best, items) : split;
}

std::vector<int> by_node(const CutProblem& p, const Items& items, const Split& split) {
  std::vector<int> out(p.nodes.size());
  for (int i = 0; i < items.count; ++i)
    for (int n : items.nodes[at(i)]) out[at(n)] = split.device[at(i)];
  return out;
}

/// The better of two by the problem's objective.
void consider(const CutProblem& p, const Items& items, std::optional<Split> split, std::optional<Split>& best) {
  if (!split) return;
  const std::vector<int> device = by_node(p, items, *split);
  if (!objections_to(p, device).empty()) return;
  split->value = value_of(p, device);
  if (!best || split->value < best->value) best = split;
}

/// Exactly over few intervals, then over the items.
Answer quickest(const CutProblem& p, const Items& items, std::int64_t steps) {
  constexpr int kFew = 16;
  std::optional<Split> known;
  consider(p, items, first_split(items, p.kinds), known);
  for (std::size_t k = 0, device = 0; k < p.kinds.size(); device += at(p.kinds[k++].count))  // all on one device
    if (p.kinds[k].count) consider(p, items, Split{0, std::vector<int>(at(items.count), static_cast<int>(device)), std::vector<int>(at(items.count))}, known);
  std::vector<int> groups;
  const Items few = coarsened(items, kFew, groups);
  std::int64_t some = steps / 8;
  consider(p, items, carried(few, least_latency(p, few, {}, some).best, items), known);
  if (items.count > kMostItems) return {known, 0, false};
  return least_latency(p, items, known, steps);
}

/// Of few devices with least work first: intervals, then around their cuts, then all.
Answer least_loaded(const CutProblem& p, const Items& items, std::int64_t steps) {
  std::optional<Split> known = first_split(items, p.kinds);
  if (items.count > kMostItems) return {known, WeightedWork(items, p.kinds).least(), false};
  bool settled = !known;
  for (int free : {4, 12})
    if (!settled) known = refined(items, p.kinds, known, free, steps / 16, settled);
  return least_load(items, p.kinds, known, steps);
}

void check(const CutProblem& p) {
  for (const CutNode& n : p.nodes) {
    if (n.seconds.size() != p.kinds.size()) throw UserError(fmt::format("'{}' has seconds for {} kinds of devices, but there are {}", n.name, n.seconds.size(), p.kinds.size()));
    bool placeable = false;
    for (std::size_t k = 0; k < p.kinds.size(); ++k) placeable |= p.kinds[k].count > 0 && std::isfinite(n.seconds[k]);
    if (!placeable) throw UserError(fmt::format("'{}' cannot be on any device that there is", n.name));
    if (n.bytes < 0 || n.transfer < 0 || std::any_of(n.seconds.begin(), n.seconds.end(), [](double s) { return !(s >= 0); })) throw UserError(fmt::format("'{}' has a negative cost", n.name));
  }
  for (auto [a, b] : p.edges)
    if (a < 0 || b < 0 || at(a) >= p.nodes.size() || at(b) >= p.nodes.size()) throw UserError("an edge leads to a node that is not there");
}

}  // namespace

}  // namespace belfry::cutting

namespace belfry {

Cut cut(const CutProblem& p, const CutOptions& options) {
  using namespace cutting;
  check(p);
  if (p.nodes.empty()) return {};
  const bool by_latency = p.objective == CutObjective::latency;
  const Items items = by_latency ? items_of(p) : contracted(items_of(p), p.kinds);
  const Answer found = by_latency ? quickest(p, items, options.steps) : least_loaded(p, items, options.steps);
  if (!found.best)
    throw UserError(fmt::format("{}: not all nodes find a device whose memory and kind suit them; take more devices, or ones with more memory",
                                found.finished ? "no split fits" : "no split was found that fits"));
  Cut out{by_node(p, items, *found.best), 0, 0};
  if (auto wrong = objections_to(p, out.device); !wrong.empty()) throw InternalError(fmt::format("a cut is not legal: {}", wrong.front()));
  out.value = value_of(p, out.device);
  out.bound = std::min(out.value, found.bound);
  return out;
}

}  // namespace belfry
