#include <belfry/placer/cut/items_internal.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/strong_components.hpp>

#include <belfry/graph/error.h>
#include <belfry/graph/plan/readers.h>

namespace belfry::cutting {

namespace {

void sort_unique(std::vector<int>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

/// Those that move, values alike added up.
std::vector<ItemValue> added_up(std::vector<ItemValue> all) {
  for (ItemValue& v : all) {
    std::erase(v.readers, v.owner);
    sort_unique(v.readers);
  }
  std::erase_if(all, [](const ItemValue& v) { return v.readers.empty(); });
  auto key = [](const ItemValue& v) { return std::tie(v.owner, v.readers); };
  std::stable_sort(all.begin(), all.end(), [&](const ItemValue& a, const ItemValue& b) { return key(a) < key(b); });
  std::vector<ItemValue> out;
  for (ItemValue& v : all) {
    if (!out.empty() && key(out.back()) == key(v)) out.back().seconds += v.seconds;
    else out.push_back(std::move(v));
  }
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

/// Groups as items with no costs yet, numbered by rank, or depth first without one. `number`: of each group.
Items linked(std::vector<std::vector<int>> next, const std::vector<int>& rank, std::vector<int>& number) {
  for (auto& all : next) sort_unique(all);
  std::vector<int> order(next.size());
  if (rank.empty()) {
    order = topological(next);
    if (order.size() != next.size()) throw InternalError("merged items make a cycle");
  } else {
    for (std::size_t g = 0; g < next.size(); ++g) order[at(rank[g])] = static_cast<int>(g);
  }
  number.resize(next.size());
  for (std::size_t k = 0; k < order.size(); ++k) number[at(order[k])] = static_cast<int>(k);
  Items out;
  out.count = static_cast<int>(next.size());
  out.next.resize(next.size());
  for (std::size_t g = 0; g < next.size(); ++g) {
    std::vector<int>& mine = out.next[at(number[g])] = std::move(next[g]);
    for (int& h : mine) h = number[at(h)];
    std::sort(mine.begin(), mine.end());
  }
  return out;
}

void set_values(Items& items, std::vector<ItemValue> values) {
  items.values = added_up(std::move(values));
  reduce(items);
  items.touches.assign(at(items.count), {});
  for (std::size_t v = 0; v < items.values.size(); ++v) {
    items.touches[at(items.values[v].owner)].push_back(static_cast<int>(v));
    for (int r : items.values[v].readers) items.touches[at(r)].push_back(static_cast<int>(v));
  }
}

}  // namespace

std::vector<int> classes_of(const CutProblem& p) {
  std::vector<std::pair<int, int>> named;  // classes, and a node of each
  for (std::size_t i = 0; i < p.nodes.size(); ++i)
    if (p.nodes[i].together >= 0) named.emplace_back(p.nodes[i].together, static_cast<int>(i));
  std::sort(named.begin(), named.end());
  std::vector<int> out(p.nodes.size(), -1);
  for (std::size_t k = 1; k < named.size(); ++k)  // as yet the node before, of the same class
    if (named[k].first == named[k - 1].first) out[at(named[k].second)] = named[k - 1].second;
  int count = 0;
  for (int& c : out) c = c < 0 ? count++ : out[at(c)];
  return out;
}

std::vector<std::pair<int, int>> order_edges(const CutProblem& p) {
  const std::vector<int> item = classes_of(p);
  std::vector<std::pair<int, int>> forward;
  for (auto [a, b] : p.edges)
    if (!p.nodes[at(a)].backward && !p.nodes[at(b)].backward) forward.emplace_back(item[at(a)], item[at(b)]);
  std::sort(forward.begin(), forward.end());
  // Gradients run against the order of their layers; in some files they are drawn along it.
  long along = 0, against = 0;
  for (auto [a, b] : p.edges)
    if (p.nodes[at(a)].backward && p.nodes[at(b)].backward && item[at(a)] != item[at(b)]) {
      along += std::binary_search(forward.begin(), forward.end(), std::pair(item[at(a)], item[at(b)]));
      against += std::binary_search(forward.begin(), forward.end(), std::pair(item[at(b)], item[at(a)]));
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
  std::vector<std::vector<int>> next(group.empty() ? 0 : at(*std::max_element(group.begin(), group.end()) + 1));
  for (int i = 0; i < items.count; ++i)
    for (int j : items.next[at(i)])
      if (group[at(i)] != group[at(j)]) next[at(group[at(i)])].push_back(group[at(j)]);
  std::vector<int> number;
  Items out = linked(std::move(next), rank, number);
  out.seconds.assign(items.seconds.size(), std::vector<double>(at(out.count)));
  out.bytes.resize(at(out.count));
  out.nodes.resize(at(out.count));
  std::vector<int> to;
  for (int i = 0; i < items.count; ++i) {
    const int g = number[at(group[at(i)])];
    to.push_back(g);
    for (std::size_t k = 0; k < items.seconds.size(); ++k) out.seconds[k][at(g)] += items.seconds[k][at(i)];
    out.bytes[at(g)] += items.bytes[at(i)];
    out.nodes[at(g)].insert(out.nodes[at(g)].end(), items.nodes[at(i)].begin(), items.nodes[at(i)].end());
  }
  std::vector<ItemValue> values = items.values;
  for (ItemValue& v : values) {
    v.owner = to[at(v.owner)];
    for (int& r : v.readers) r = to[at(r)];
  }
  set_values(out, std::move(values));
  return out;
}

Items items_of(const CutProblem& p) {
  const std::vector<int> item = classes_of(p);
  const std::vector<std::pair<int, int>> order = order_edges(p);
  const NumberLists after(p.nodes.size(), [&](auto add) {
    for (auto [a, b] : order) add(at(a), b);
  });
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS> classes(p.nodes.empty() ? 0 : at(*std::max_element(item.begin(), item.end()) + 1));
  for (std::size_t i = 0; i < p.nodes.size(); ++i)
    for (int j : after[i])
      if (item[i] != item[at(j)]) boost::add_edge(at(item[i]), at(item[at(j)]), classes);
  std::vector<int> component(boost::num_vertices(classes));
  const int count = boost::strong_components(classes, boost::make_iterator_property_map(component.begin(), boost::get(boost::vertex_index, classes)));
  auto group = [&](int node) { return component[at(item[at(node)])]; };
  std::vector<std::vector<int>> next(at(count));
  for (auto [a, b] : order)
    if (group(a) != group(b)) next[at(group(a))].push_back(group(b));
  std::vector<int> number;
  Items out = linked(std::move(next), {}, number);
  out.seconds.assign(p.kinds.size(), std::vector<double>(at(count)));
  out.bytes.resize(at(count));
  out.nodes.resize(at(count));
  const NumberLists readers(p.nodes.size(), [&](auto add) {
    for (auto [a, b] : p.edges) add(at(a), b);
  });
  std::vector<ItemValue> values;
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    const int g = number[at(group(static_cast<int>(i)))];
    for (std::size_t k = 0; k < p.kinds.size(); ++k) out.seconds[k][at(g)] += p.nodes[i].seconds.at(k);
    out.bytes[at(g)] += p.nodes[i].bytes;
    out.nodes[at(g)].push_back(static_cast<int>(i));
    if (!(p.nodes[i].transfer > 0)) continue;
    ItemValue v{p.nodes[i].transfer, g, {}};
    for (int r : readers[i])
      if (number[at(group(r))] != g) v.readers.push_back(number[at(group(r))]);
    if (!v.readers.empty()) values.push_back(std::move(v));
  }
  set_values(out, std::move(values));
  return out;
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
