#include <belfry/graph/plan/landing.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

struct Bytes {
  std::int64_t first = 0, past = 0;
};

/// What a node takes of a feed in a tower: its rows as a split does, else all.
Bytes taken(const PlacedGraph& plan, const PlanNode& n, int tower) {
  const LocalType whole = local_type(plan.value(n.inputs[0]), plan.share(-1));
  const PlanValue& to = plan.value(n.outputs[0]);
  const auto axis = static_cast<std::size_t>(to.state.axis);
  if (!is_op(n, kSplit) || axis >= whole.shape.size() || axis >= to.type.shape.size()) return {0, whole.bytes()};
  const Share share = plan.share(tower);
  const auto end = whole.shape.end(), row = whole.shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const std::int64_t behind = std::accumulate(row + 1, end, static_cast<std::int64_t>(size_of(whole.dtype)), std::multiplies<>());
  const std::int64_t before = std::accumulate(whole.shape.begin(), row, std::int64_t{1}, std::multiplies<>()), factor = to.type.shape[axis].factor;
  return {factor * share.first_row * behind, ((before - 1) * *row + factor * (share.first_row + share.rows)) * behind};
}

bool is_gpu(const PlacedGraph& plan, int device) {
  return device >= 0 && static_cast<std::size_t>(device) < plan.cluster.devices.size() && plan.cluster.devices[static_cast<std::size_t>(device)].id.kind == "gpu";
}

bool carries_feed(const PlacedGraph& plan, const PlanNode& n) { return !n.inputs.empty() && n.inputs[0] >= 0 && is_op(plan.maker(n.inputs[0]), kInput) && moves_values(n); }

}  // namespace

bool reads_landed(const PlacedGraph& plan, const PlanNode& n, int device) { return is_gpu(plan, device) && carries_feed(plan, n); }

std::vector<Landing> landings(const PlacedGraph& plan) {
  std::vector<Landing> out(plan.cluster.devices.size());
  std::vector<std::map<ValueIndex, Bytes>> read(out.size());
  for (const PlanNode& n : plan.nodes) {
    if (!carries_feed(plan, n) || n.outputs.empty()) continue;
    auto take = [&](int device, int tower) {
      if (!is_gpu(plan, device)) return;
      const Bytes more = taken(plan, n, tower);
      if (more.first >= more.past) return;  // an axis before the rows' may be empty
      auto [at, fresh] = read[static_cast<std::size_t>(device)].try_emplace(n.inputs[0], more);
      if (!fresh) at->second = {std::min(at->second.first, more.first), std::max(at->second.past, more.past)};
    };
    if (n.scope != Scope::tower) {
      for (int d : n.holders) take(d, -1);
    } else if (n.vector >= 0 && static_cast<std::size_t>(n.vector) < plan.vectors.size()) {
      const std::vector<int>& devices = plan.devices(n);
      for (int t = 0; t < std::min(plan.present(), static_cast<int>(devices.size())); ++t) take(devices[static_cast<std::size_t>(t)], t);
    }
  }
  for (std::size_t d = 0; d < out.size(); ++d)
    for (const auto& [value, bytes] : read[d]) {
      out[d].feeds.push_back({value, bytes.first, bytes.past, out[d].bytes});
      out[d].bytes += aligned_bytes(bytes.past - bytes.first);
    }
  return out;
}

std::vector<std::int64_t> landing_bytes(const PlacedGraph& plan) {
  std::vector<std::int64_t> out(plan.cluster.devices.size());
  std::set<ValueIndex> staged;
  const std::vector<Landing> all = landings(plan);
  for (std::size_t d = 0; d < all.size(); ++d) {
    out[d] += 2 * all[d].bytes;
    for (const LandedFeed& f : all[d].feeds) staged.insert(f.value);
  }
  for (ValueIndex v : staged)
    if (const DeviceList& hosts = plan.maker(v).holders; !hosts.empty() && hosts.front() >= 0 && static_cast<std::size_t>(hosts.front()) < out.size()) out[static_cast<std::size_t>(hosts.front())] += 2 * aligned_bytes(local_type(plan.value(v), plan.share(-1)).bytes());
  return out;
}

std::vector<Move> landing_moves(const PlacedGraph& plan) {
  std::vector<Move> out;
  const std::vector<Landing> all = landings(plan);
  for (std::size_t d = 0; d < all.size(); ++d) {
    std::map<int, std::int64_t> from;
    for (const LandedFeed& f : all[d].feeds)
      if (const DeviceList& hosts = plan.maker(f.value).holders; !hosts.empty()) from[hosts.front()] += f.past - f.first;
    for (auto [device, bytes] : from) out.push_back({device, static_cast<int>(d), bytes});
  }
  return out;
}

}  // namespace belfry
