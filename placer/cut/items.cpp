#include <belfry/placer/cut/items_internal.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/strong_components.hpp>

#include <belfry/graph/error.h>

namespace belfry::cutting {

namespace {

/// Class per node; nodes of no class are each their own.
std::vector<int> classes_of(const CutProblem& p) {
  std::map<int, int> known;
  std::vector<int> out;
  int count = 0;
  for (const CutNode& n : p.nodes) {
    if (n.together < 0) out.push_back(count++);
    else {
      auto [entry, fresh] = known.try_emplace(n.together, count);
      count += fresh;
      out.push_back(entry->second);
    }
  }
  return out;
}

/// Owners and readers as groups, values alike added up.
std::vector<ItemValue> merged_values(const std::vector<ItemValue>& values, const std::vector<int>& to) {
  std::map<std::pair<int, std::vector<int>>, double> seconds;
  for (const ItemValue& v : values) {
    std::set<int> readers;
    for (int r : v.readers)
      if (to[at(r)] != to[at(v.owner)]) readers.insert(to[at(r)]);
    if (!readers.empty() && v.seconds > 0) seconds[{to[at(v.owner)], {readers.begin(), readers.end()}}] += v.seconds;
  }
  std::vector<ItemValue> out;
  for (const auto& [key, s] : seconds) out.push_back({s, key.first, key.second});
  return out;
}

/// Depth first, so that what belongs together is close together. Fewer than all where there is a cycle.
std::vector<int> topological(const std::vector<std::vector<int>>& next) {
  std::vector<int> missing(next.size()), ready, out;
  for (const auto& all : next)
    for (int j : all) ++missing[at(j)];
  for (std::size_t i = next.size(); i-- > 0;)
    if (!missing[i]) ready.push_back(static_cast<int>(i));
  while (!ready.empty()) {
    int i = ready.back();
    ready.pop_back();
    out.push_back(i);
    for (auto j = next[at(i)].rbegin(); j != next[at(i)].rend(); ++j)
      if (--missing[at(*j)] == 0) ready.push_back(*j);
  }
  return out;
}

/// Drops edges that a longer way implies: they constrain nothing and cost the search time.
void reduce(Items& items) {
  constexpr int kMostItems = 8192;
  if (items.count <= kMostItems) {
    const std::size_t words = (at(items.count) + 63) / 64;
    std::vector<std::uint64_t> below(at(items.count) * words);
    for (int i = items.count; i-- > 0;) {
      std::uint64_t* mine = &below[at(i) * words];
      std::vector<int> kept;
      for (int j : items.next[at(i)]) {
        if (mine[at(j) / 64] >> (j % 64) & 1) continue;
        kept.push_back(j);
        mine[at(j) / 64] |= std::uint64_t{1} << (j % 64);
        for (std::size_t k = 0; k < words; ++k) mine[k] |= below[at(j) * words + k];
      }
      items.next[at(i)] = kept;
    }
  }
  items.before.assign(at(items.count), {});
  for (int i = 0; i < items.count; ++i)
    for (int j : items.next[at(i)]) items.before[at(j)].push_back(i);
}

void set_touches(Items& items) {
  items.touches.assign(at(items.count), {});
  for (std::size_t v = 0; v < items.values.size(); ++v) {
    items.touches[at(items.values[v].owner)].push_back(static_cast<int>(v));
    for (int r : items.values[v].readers) items.touches[at(r)].push_back(static_cast<int>(v));
  }
}

}  // namespace

std::vector<std::pair<int, int>> order_edges(const CutProblem& p) {
  const std::vector<int> item = classes_of(p);
  std::set<std::pair<int, int>> forward;
  for (auto [a, b] : p.edges)
    if (!p.nodes[at(a)].backward && !p.nodes[at(b)].backward) forward.emplace(item[at(a)], item[at(b)]);
  // Gradients run against the order of their layers; in some files they are drawn along it.
  long along = 0, against = 0;
  for (auto [a, b] : p.edges)
    if (p.nodes[at(a)].backward && p.nodes[at(b)].backward && item[at(a)] != item[at(b)]) {
      along += forward.contains({item[at(a)], item[at(b)]});
      against += forward.contains({item[at(b)], item[at(a)]});
    }
  std::vector<std::pair<int, int>> out;
  for (auto [a, b] : p.edges) {
    const bool from = p.nodes[at(a)].backward, to = p.nodes[at(b)].backward;
    if (!from && !to) out.emplace_back(a, b);
    else if (from && to) out.push_back(along > against ? std::pair(a, b) : std::pair(b, a));
    else if (from && !to) out.insert(out.end(), {{a, b}, {b, a}});  // a forward part cannot wait for a backward one elsewhere
  }
  return out;
}

Items merged(const Items& items, const std::vector<int>& group, const std::vector<int>& rank) {
  const int count = group.empty() ? 0 : *std::max_element(group.begin(), group.end()) + 1;
  std::vector<std::set<int>> edges(at(count));
  for (int i = 0; i < items.count; ++i)
    for (int j : items.next[at(i)])
      if (group[at(i)] != group[at(j)]) edges[at(group[at(i)])].insert(group[at(j)]);
  std::vector<int> order(at(count));
  if (rank.empty()) {
    std::vector<std::vector<int>> next;
    for (const auto& e : edges) next.emplace_back(e.begin(), e.end());
    order = topological(next);
    if (order.size() != next.size()) throw InternalError("merged items make a cycle");
  } else {
    for (int g = 0; g < count; ++g) order[at(rank[at(g)])] = g;
  }
  std::vector<int> number(at(count));
  for (int k = 0; k < count; ++k) number[at(order[at(k)])] = k;
  Items out;
  out.count = count;
  out.next.resize(at(count));
  for (int g = 0; g < count; ++g) {
    for (int h : edges[at(g)]) out.next[at(number[at(g)])].push_back(number[at(h)]);
    std::sort(out.next[at(number[at(g)])].begin(), out.next[at(number[at(g)])].end());
  }
  out.seconds.assign(items.seconds.size(), std::vector<double>(at(count)));
  out.bytes.resize(at(count));
  out.nodes.resize(at(count));
  std::vector<int> to;
  for (int i = 0; i < items.count; ++i) {
    const int g = number[at(group[at(i)])];
    to.push_back(g);
    for (std::size_t k = 0; k < items.seconds.size(); ++k) out.seconds[k][at(g)] += items.seconds[k][at(i)];
    out.bytes[at(g)] += items.bytes[at(i)];
    out.nodes[at(g)].insert(out.nodes[at(g)].end(), items.nodes[at(i)].begin(), items.nodes[at(i)].end());
  }
  out.values = merged_values(items.values, to);
  reduce(out);
  set_touches(out);
  return out;
}

Items items_of(const CutProblem& p) {
  Items nodes;  // one each
  nodes.count = static_cast<int>(p.nodes.size());
  nodes.next.resize(p.nodes.size());
  nodes.seconds.assign(p.kinds.size(), {});
  std::vector<std::set<int>> readers(p.nodes.size());
  for (auto [a, b] : p.edges) readers[at(a)].insert(b);
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    for (std::size_t k = 0; k < p.kinds.size(); ++k) nodes.seconds[k].push_back(p.nodes[i].seconds.at(k));
    nodes.bytes.push_back(p.nodes[i].bytes);
    nodes.nodes.push_back({static_cast<int>(i)});
    nodes.values.push_back({p.nodes[i].transfer, static_cast<int>(i), {readers[i].begin(), readers[i].end()}});
  }
  for (auto [a, b] : order_edges(p)) nodes.next[at(a)].push_back(b);
  const std::vector<int> item = classes_of(p);
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS> classes(p.nodes.empty() ? 0 : at(*std::max_element(item.begin(), item.end()) + 1));
  for (std::size_t i = 0; i < p.nodes.size(); ++i)
    for (int j : nodes.next[i])
      if (item[i] != item[at(j)]) boost::add_edge(at(item[i]), at(item[at(j)]), classes);
  std::vector<int> component(boost::num_vertices(classes));
  boost::strong_components(classes, boost::make_iterator_property_map(component.begin(), boost::get(boost::vertex_index, classes)));
  std::vector<int> group;
  for (int i : item) group.push_back(component[at(i)]);
  return merged(nodes, group);
}

namespace {

/// How much more any device may have to do once `item`, which can only be apart from `other` by lying just beside it, moves there.
bool never_worse(const Items& items, const std::vector<CutKind>& kinds, int item, int other) {
  double moved = 0;
  for (int v : items.touches[at(item)]) {
    const ItemValue& value = items.values[at(v)];
    const bool read = std::binary_search(value.readers.begin(), value.readers.end(), other);
    if (value.owner == other || (value.owner == item && read)) moved -= value.readers.size() == 1 ? value.seconds : 0;
    else moved += value.seconds;
  }
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (items.seconds[k][at(item)] + (kinds[k].pays ? moved : 0) > 1e-15) return false;
  return true;
}

}  // namespace

Items contracted(Items items, const std::vector<CutKind>& kinds) {
  const double all = std::accumulate(items.bytes.begin(), items.bytes.end(), 0.0);
  const bool roomy = std::all_of(kinds.begin(), kinds.end(), [&](const CutKind& k) { return all <= k.memory; });
  for (;;) {
    std::vector<int> group(at(items.count));
    std::iota(group.begin(), group.end(), 0);
    std::vector<bool> taken(at(items.count));
    bool found = false;
    auto consider = [&](int i, const std::vector<int>& beside) {
      if (beside.size() != 1 || taken[at(i)] || taken[at(beside[0])] || !(roomy || items.bytes[at(i)] == 0)) return;
      if (!never_worse(items, kinds, i, beside[0])) return;
      group[at(i)] = beside[0];
      taken[at(i)] = taken[at(beside[0])] = found = true;
    };
    for (int i = 0; i < items.count; ++i) {
      consider(i, items.next[at(i)]);
      consider(i, items.before[at(i)]);
    }
    if (!found) return items;
    std::vector<int> number(at(items.count), -1);
    int count = 0;
    for (int i = 0; i < items.count; ++i)
      if (group[at(i)] == i) number[at(i)] = count++;
    for (int i = 0; i < items.count; ++i) number[at(i)] = number[at(group[at(i)])];
    items = merged(items, number);
  }
}

}  // namespace belfry::cutting
