#include <belfry/graph/plan/links.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

std::string place_at(const std::string& to, const DeviceId& id) {
  std::string out = to;
  if (auto star = to.find('*'); star != to.npos) out.replace(star, 1, std::to_string(id.host));
  return out.starts_with("/host:0/") ? out.substr(8) : out;
}

Links::Links(const Cluster& cluster) : cluster_(cluster) {
  std::set<std::pair<std::string, std::string>> known;
  for (const ClusterLink& l : cluster.links)
    for (const DeviceId& id : l.devices) {
      const std::string &space = cluster.space(cluster.at(id)), to = place_at(l.to, id);
      if (space == to || !known.emplace(space, to).second) continue;  // devices of one space share its way
      int a = place(space), b = place(to);
      add(a, b, l.bandwidth, l.latency);
      add(b, a, l.bandwidth, l.latency);
      ways_[ways_.size() - 2].from = ways_.back().to = space;
      ways_[ways_.size() - 2].to = ways_.back().from = to;
    }
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) of_device_.push_back(place(cluster.space(static_cast<int>(d))));
  ends_.resize(places_.size());
  reached_.resize(places_.size());
  for (std::size_t d = 0; d < cluster.devices.size(); ++d)
    if (cluster.devices[d].id.kind == "gpu") ends_[static_cast<std::size_t>(of_device_[d])] = true;
}

int Links::place(const std::string& name) {
  auto [at, fresh] = places_.try_emplace(name, static_cast<int>(places_.size()));
  if (fresh) out_.emplace_back();
  return at->second;
}

void Links::add(int from, int to, double bandwidth, double latency) {
  out_[static_cast<std::size_t>(from)].push_back(static_cast<int>(ways_.size()));
  head_.push_back(to);
  ways_.push_back({{}, {}, bandwidth, latency});
}

/// Breadth first, so a route has the fewest ways; among those of one length the widest bottleneck, then the first.
const std::vector<int>& Links::reached_from(int from) {
  std::vector<int>& via = reached_[static_cast<std::size_t>(from)];
  if (!via.empty()) return via;
  std::vector<int> hops(out_.size(), -1);
  std::vector<double> width(out_.size(), 0);
  via.assign(out_.size(), -1);
  std::queue<int> next;
  next.push(from);
  hops[static_cast<std::size_t>(from)] = 0;
  width[static_cast<std::size_t>(from)] = std::numeric_limits<double>::infinity();
  for (; !next.empty(); next.pop()) {
    if (next.front() != from && ends_[static_cast<std::size_t>(next.front())]) continue;
    auto p = static_cast<std::size_t>(next.front());
    for (int w : out_[p]) {
      auto q = static_cast<std::size_t>(head_[static_cast<std::size_t>(w)]);
      double wide = std::min(width[p], ways_[static_cast<std::size_t>(w)].bandwidth);
      if (hops[q] >= 0 && (hops[q] != hops[p] + 1 || wide <= width[q])) continue;
      if (hops[q] < 0) next.push(static_cast<int>(q));
      hops[q] = hops[p] + 1;
      width[q] = wide;
      via[q] = w;
    }
  }
  return via;
}

std::vector<int> Links::route(int from, int to) {
  std::vector<int> out;
  const int start = place_of(from), end = place_of(to);
  if (start == end) return out;
  const std::vector<int>& via = reached_from(start);
  for (int p = end; p != start;) {
    const int w = via[static_cast<std::size_t>(p)];
    if (w < 0) throw UserError(fmt::format("no link of the cluster leads from {} to {}; give it one in the cluster file's \"links\"", cluster_.space(from), cluster_.space(to)));
    out.push_back(w);
    p = head_[static_cast<std::size_t>(w ^ 1)];  // a way's other direction stands beside it
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool Links::leads(int from, int to) {
  const int start = place_of(from), end = place_of(to);
  return start == end || reached_from(start)[static_cast<std::size_t>(end)] >= 0;
}

Apart::Apart(const Cluster& cluster) : cluster_(cluster), links_(cluster), any_(!cluster.unlinked.empty()) {
  // What the host reaches, it also joins: ways lead both ways, and through a host.
  for (int d = 0; !any_ && !links_.empty() && d < static_cast<int>(cluster.devices.size()); ++d) any_ = !links_.leads(cluster.host(), d);
}

double Links::latency(const std::vector<int>& route) const {
  double out = 0;
  for (int w : route) out += ways_[static_cast<std::size_t>(w)].latency;
  return out;
}

double Links::exchange(const std::vector<int>& members, const std::vector<int>& pieces, double bytes, std::vector<double>& load, bool behind) {
  auto [at, fresh] = crossings_.try_emplace({members, pieces});
  Crossings& c = at->second;
  if (fresh) {
    std::vector<double> count(ways_.size());
    std::vector<int> at;
    for (int m : members) at.push_back(place_of(m));
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::vector<int>& via = reached_from(at[i]);
      for (std::size_t k = 0; k < members.size(); ++k) {
        double latency = 0;
        for (int p = at[k]; p != at[i];) {  // a million pairs of a thousand devices: no list for each
          const int w = via[static_cast<std::size_t>(p)];
          if (w < 0) route(members[i], members[k]);  // says that there is none
          count[static_cast<std::size_t>(w)] += pieces.empty() ? 1 : pieces[i];
          latency += ways_[static_cast<std::size_t>(w)].latency;
          p = head_[static_cast<std::size_t>(w ^ 1)];
        }
        c.latency = std::max(c.latency, latency);
      }
    }
    for (std::size_t w = 0; w < count.size(); ++w)
      if (count[w] > 0) c.pairs[static_cast<int>(w)] = count[w];
  }
  double seconds = 0;
  for (auto [w, pairs] : c.pairs) {
    load[static_cast<std::size_t>(w)] += pairs * bytes;
    seconds = std::max(seconds, pairs * bytes / ways_[static_cast<std::size_t>(w)].bandwidth);
  }
  return (behind ? 0 : c.latency) + seconds;
}

namespace {

/// Where a device's widest links lead: to a switch, or else to other devices' spaces.
struct Widest {
  double bandwidth = 0;
  std::string hub;
  std::set<std::string> spaces;
};

std::vector<Widest> widest_links(const Cluster& cluster) {
  std::vector<Widest> out(cluster.devices.size());
  std::map<std::string, std::vector<int>> of_space;
  for (std::size_t d = 0; d < out.size(); ++d)  // hosts pass on what comes, as switches do
    if (cluster.devices[d].id.kind != "cpu") of_space[cluster.space(static_cast<int>(d))].push_back(static_cast<int>(d));
  auto add = [&](int d, const std::string& to, bool space, double bandwidth) {
    Widest& at = out[static_cast<std::size_t>(d)];
    if (bandwidth > at.bandwidth) at = {bandwidth, "", {}};
    if (bandwidth < at.bandwidth) return;
    if (space) at.spaces.insert(to);
    else if (at.hub.empty()) at.hub = to;
  };
  for (const ClusterLink& l : cluster.links)
    for (const DeviceId& id : l.devices) {
      const int d = cluster.find(id);
      if (d < 0) continue;
      const std::string to = place_at(l.to, id);
      const auto there = of_space.find(to);
      add(d, to, there != of_space.end(), l.bandwidth);
      if (there != of_space.end())
        for (int e : there->second) add(e, cluster.space(d), true, l.bandwidth);
    }
  return out;
}

}  // namespace

std::vector<int> link_groups(const Cluster& cluster) {
  const std::vector<Widest> widest = widest_links(cluster);
  auto near = [&](int a, int b) { return widest[static_cast<std::size_t>(a)].spaces.contains(cluster.space(b)) && widest[static_cast<std::size_t>(b)].spaces.contains(cluster.space(a)); };
  std::map<std::pair<int, std::string>, int> by_hub;  // (host, switch or whole device) → group
  std::vector<int> out;
  std::vector<std::vector<int>> members;
  for (int d = 0; d < static_cast<int>(widest.size()); ++d) {
    const Widest& at = widest[static_cast<std::size_t>(d)];
    const DeviceId& id = cluster.devices[static_cast<std::size_t>(d)].id;
    const auto fits = [&](const std::vector<int>& group) {
      return std::all_of(group.begin(), group.end(), [&](int e) { return cluster.devices[static_cast<std::size_t>(e)].id.host == id.host && near(d, e); });
    };
    int g = static_cast<int>(members.size());
    if (at.hub.empty() && !at.spaces.empty()) g = static_cast<int>(std::find_if(members.begin(), members.end(), fits) - members.begin());
    else g = by_hub.try_emplace({id.host, !at.hub.empty() ? at.hub : id.slice >= 0 ? fmt::format("{}:{}", id.kind, id.index) : ""}, g).first->second;
    if (g == static_cast<int>(members.size())) members.emplace_back();
    members[static_cast<std::size_t>(g)].push_back(d);
    out.push_back(g);
  }
  return out;
}

void MaxMin::share(std::vector<Flow>& flows) {
  auto left = [&](int way) -> Left& { return left_[static_cast<std::size_t>(way)]; };
  used_.clear(), open_.clear();
  for (Flow& f : flows) {
    open_.push_back(&f);
    for (int w : f.route)
      if (left(w).flows++ == 0) left(w).bandwidth = ways_[static_cast<std::size_t>(w)].bandwidth, used_.push_back(w);
  }
  while (!open_.empty()) {
    double least = std::numeric_limits<double>::infinity();
    for (int w : used_)
      if (left(w).flows) least = std::min(least, left(w).bandwidth / left(w).flows);
    for (int w : used_) left(w).full = left(w).flows && left(w).bandwidth / left(w).flows <= least * (1 + 1e-9);  // those that are as narrow are filled together
    std::erase_if(open_, [&](Flow* f) {
      if (std::none_of(f->route.begin(), f->route.end(), [&](int w) { return left(w).full; })) return false;
      f->rate = least;
      for (int w : f->route) left(w).bandwidth = std::max(0.0, left(w).bandwidth - least), --left(w).flows;
      return true;
    });
  }
}

}  // namespace belfry
