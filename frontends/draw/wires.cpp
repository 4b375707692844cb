#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/draw/wires_internal.h>

namespace belfry::picture {

namespace {

/// Edges with one key are one wire.
using Key = std::tuple<int, int, int, int>;

Key key_of(const Diagram& d, const Edge& e) {
  const Box &from = d.boxes[static_cast<std::size_t>(e.from)], &to = d.boxes[static_cast<std::size_t>(e.to)];
  const bool inside = from.lane == to.lane && !e.across;
  if (inside && to.row == from.row + 1) return {0, e.from, e.to, 0};
  if (!d.folded) return {1, e.from, to.lane, e.across};
  if (inside) return to.band >= Band::aggregate ? Key{2, e.to, static_cast<int>(from.fill), 0} : Key{3, e.from, 0, 0};
  return {4 + e.across, from.lane * 8 + static_cast<int>(e.fill), to.lane * 8 + static_cast<int>(to.band), from.fill == Fill::state ? e.from : to.band >= Band::aggregate ? e.to : -1};
}

}  // namespace

std::vector<Wire> wires_of(const Diagram& d) {
  std::map<Key, std::vector<const Edge*>> bundles;
  std::vector<Key> order;
  for (const Edge& e : d.edges) {
    std::vector<const Edge*>& bundle = bundles[key_of(d, e)];
    if (bundle.empty()) order.push_back(key_of(d, e));
    bundle.push_back(&e);
  }
  std::vector<Wire> out;
  for (const Key& key : order) {
    Wire w;
    std::set<int> from, to;
    std::map<int, std::int64_t> bytes;  // by source: what several read is there once
    std::set<std::string> links;
    std::int64_t all = 0;
    for (const Edge* e : bundles[key]) {
      if (from.insert(e->from).second) w.from.push_back(e->from);
      if (to.insert(e->to).second) w.to.push_back(e->to);
      std::int64_t& of = bytes[e->from];
      of = d.folded ? of + e->bytes : std::max(of, e->bytes);
      w.across = e->across;
      if (!e->link.empty()) links.insert(e->link);
    }
    for (const auto& [source, n] : bytes) all += n;
    w.fill = bundles[key][0]->fill;
    if (w.across) {
      const int times = d.lanes[static_cast<std::size_t>(d.boxes[static_cast<std::size_t>(w.to[0])].lane)].times;
      w.label = human_bytes(all) + " " + (links.size() == 1 ? *links.begin() : fmt::format("over {} links", links.size()));
      if (d.folded && times > 1) w.label = fmt::format("{}× ", times) + w.label;
      w.note = fmt::format("{}\n{} → {}", w.label, d.boxes[static_cast<std::size_t>(w.from[0])].label, d.boxes[static_cast<std::size_t>(w.to[0])].label);
      if (w.from.size() + w.to.size() > 2) w.note += fmt::format(", and {} more", w.from.size() + w.to.size() - 2);
    }
    out.push_back(std::move(w));
  }
  return out;
}

std::string rounded(const std::vector<std::pair<double, double>>& corners) {
  std::vector<std::pair<double, double>> p;
  for (auto c : corners)
    if (p.empty() || std::abs(c.first - p.back().first) + std::abs(c.second - p.back().second) > 0.05) p.push_back(c);
  std::string out = fmt::format("M{:.1f} {:.1f}", p[0].first, p[0].second);
  for (std::size_t i = 1; i < p.size(); ++i) {
    if (i + 1 == p.size()) {
      out += fmt::format("L{:.1f} {:.1f}", p[i].first, p[i].second);
      break;
    }
    auto towards = [&](std::pair<double, double> a) {
      const double dx = a.first - p[i].first, dy = a.second - p[i].second, length = std::hypot(dx, dy), r = std::min(5.0, length / 2);
      return std::pair(p[i].first + dx / length * r, p[i].second + dy / length * r);
    };
    const auto in = towards(p[i - 1]), away = towards(p[i + 1]);
    out += fmt::format("L{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", in.first, in.second, p[i].first, p[i].second, away.first, away.second);
  }
  return out;
}

int Tracks::add(double low, double high) {
  for (std::size_t i = 0; i < ends_.size(); ++i)
    if (ends_[i] < low) {
      ends_[i] = high;
      return static_cast<int>(i);
    }
  ends_.push_back(high);
  return static_cast<int>(ends_.size()) - 1;
}

}  // namespace belfry::picture
