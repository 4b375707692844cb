#include <belfry/placer/cut/bounds_internal.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

namespace belfry::cutting {

namespace {

constexpr int kMostForFlow = 4096;            // items; beyond, cuts are taken to cost nothing

/// The smallest cut between what must be before and what must be behind, of hyperedges that cost something where they are cut.
class ClosureCut {
 public:
  explicit ClosureCut(int items) : graph_(at(items) + 2), source_(at(items)), sink_(at(items) + 1) {}
  static constexpr std::int64_t kNever = std::int64_t{1} << 60;

  void add(std::size_t from, std::size_t to, std::int64_t capacity) {
    auto e = boost::add_edge(from, to, graph_).first, back = boost::add_edge(to, from, graph_).first;
    boost::put(boost::edge_capacity, graph_, e, capacity);
    boost::put(boost::edge_capacity, graph_, back, 0);
    boost::put(boost::edge_reverse, graph_, e, back);
    boost::put(boost::edge_reverse, graph_, back, e);
  }
  std::size_t add_vertex() { return boost::add_vertex(graph_); }
  void before(int item) { add(source_, at(item), kNever); }
  void behind(int item) { add(at(item), sink_, kNever); }
  std::int64_t operator()() { return boost::boykov_kolmogorov_max_flow(graph_, source_, sink_); }

 private:
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::bidirectionalS>;
  using Back = boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor>;
  using Vertex = boost::property<boost::vertex_color_t, boost::default_color_type, boost::property<boost::vertex_distance_t, long, Back>>;
  using Edge = boost::property<boost::edge_capacity_t, std::int64_t, boost::property<boost::edge_residual_capacity_t, std::int64_t, boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
  boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Vertex, Edge> graph_;
  std::size_t source_, sink_;
};

}  // namespace

WeightedWork::WeightedWork(const Items& items, const std::vector<CutKind>& kinds) : items_(items), kinds_(kinds), weight_(kinds.size(), 1), work_(at(items.count)) {
  choose_weights(kinds);
  for (std::size_t k = 0; k < kinds.size(); ++k) whole_ += weight_[k] * kinds[k].count;
  for (int i = 0; i < items.count; ++i) {
    double quickest = kInfinity;
    work_[at(i)] = kInfinity;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (kinds[k].count == 0) continue;
      quickest = std::min(quickest, items.seconds[k][at(i)]);
      work_[at(i)] = std::min(work_[at(i)], weight_[k] * items.seconds[k][at(i)]);
    }
    all_ += work_[at(i)];
    least_ = std::max(least_, quickest);
  }
  least_ = std::max(least_, all_ / whole_);
}

/// By coordinates, over ratios of items' seconds: the bound all / whole is concave along each between them.
void WeightedWork::choose_weights(const std::vector<CutKind>& kinds) {
  constexpr std::size_t kCandidates = 64;
  for (int round = 0; round < 2; ++round)
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      std::vector<double> others(at(items_.count), kInfinity), ratios;
      double devices = 0;
      for (std::size_t j = 0; j < kinds.size(); ++j) {
        if (j == k || kinds[j].count == 0) continue;
        devices += weight_[j] * kinds[j].count;
        for (int i = 0; i < items_.count; ++i) others[at(i)] = std::min(others[at(i)], weight_[j] * items_.seconds[j][at(i)]);
      }
      if (devices == 0 || kinds[k].count == 0) continue;
      for (int i = 0; i < items_.count; ++i)
        if (double r = others[at(i)] / items_.seconds[k][at(i)]; std::isfinite(r) && r > 0) ratios.push_back(r);
      std::sort(ratios.begin(), ratios.end());
      double best = -1;
      for (std::size_t c = 0; c < std::min(kCandidates, ratios.size()); ++c) {
        const double w = ratios[c * (ratios.size() - 1) / std::max<std::size_t>(std::min(kCandidates, ratios.size()) - 1, 1)];
        double sum = 0;
        for (int i = 0; i < items_.count; ++i) sum += std::min(others[at(i)], w * items_.seconds[k][at(i)]);
        if (double bound = sum / (devices + w * kinds[k].count); bound > best) best = bound, weight_[k] = w;
      }
    }
}

Bounds::Bounds(const Items& items, const std::vector<CutKind>& kinds) : WeightedWork(items, kinds) {
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (!kinds[k].pays || kinds[k].count == 0) continue;
    paying_ += kinds[k].count;
    lightest_ = std::min(lightest_, weight_[k]);
  }
  reach();
}

void Bounds::reach() {
  if (items_.count > kMostForFlow) return;
  const std::size_t words = (at(items_.count) + 63) / 64;
  auto sums = [&](const std::vector<std::vector<int>>& to, bool upwards) {
    std::vector<std::uint64_t> reached(at(items_.count) * words);
    std::vector<double> out(at(items_.count));
    for (int step = 0; step < items_.count; ++step) {
      const int i = upwards ? items_.count - 1 - step : step;
      std::uint64_t* mine = &reached[at(i) * words];
      mine[at(i) / 64] |= std::uint64_t{1} << (i % 64);
      for (int j : to[at(i)])
        for (std::size_t w = 0; w < words; ++w) mine[w] |= reached[at(j) * words + w];
      for (std::size_t w = 0; w < words; ++w)
        for (std::uint64_t bits = mine[w]; bits; bits &= bits - 1) out[at(i)] += work_[w * 64 + at(__builtin_ctzll(bits))];
    }
    return out;
  };
  above_ = sums(items_.before, false);
  below_ = sums(items_.next, true);
}

void Bounds::set_cap(double cap) {
  cap_ = cap;
  cheapest_.assign(at(paying_) + 1, 0);
  rest_.assign(at(paying_) + 1, 0);
  // Where one device could be left idle there need be no cut for it.
  const bool all_work = (whole_ - lightest_) * cap < all_ && paying_ > 1;
  if (!all_work || above_.empty()) return;
  std::vector<double> weights;
  double others = 0;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    if (kinds_[k].pays) weights.insert(weights.end(), at(kinds_[k].count), weight_[k]);
    else others += weight_[k] * kinds_[k].count;
  }
  std::sort(weights.rbegin(), weights.rend());
  windows_.assign(1, {0, others * cap});
  for (double w : weights) windows_.emplace_back(0, windows_.back().second + w * cap);
  for (int i = 0; i <= paying_; ++i) windows_[at(i)].first = all_ - windows_[at(paying_ - i)].second;
  only_.assign(items_.values.size(), -1);
  for (std::size_t v = 0; v < items_.values.size(); ++v) {
    const ItemValue& value = items_.values[v];
    double low = above_[at(value.owner)], high = all_ - below_[at(value.owner)];
    for (int r : value.readers) low = std::min(low, above_[at(r)]), high = std::max(high, all_ - below_[at(r)]);
    int ways = 0;
    for (int i = 1; i < paying_; ++i)
      if (windows_[at(i)].first <= high && windows_[at(i)].second >= low) only_[v] = i, ++ways;
    if (ways != 1) only_[v] = -1;
  }
  for (int i = paying_; i-- > 1;) {
    cheapest_[at(i)] = cheapest_cut(i);
    rest_[at(i) - 1] = rest_[at(i)] + 2 * cheapest_[at(i)];
  }
}

double Bounds::cheapest_cut(int paid) const {
  double sum = 0;
  for (std::size_t v = 0; v < items_.values.size(); ++v)
    if (only_[v] == paid) sum += items_.values[v].seconds;
  if (sum == 0) return 0;
  const double scale = static_cast<double>(std::int64_t{1} << 40) / sum;  // rounded down: still a bound
  ClosureCut cut(items_.count);
  auto [low, high] = windows_[at(paid)];
  const double slack = 1e-9 * all_;
  for (int i = 0; i < items_.count; ++i) {
    const bool before = all_ - below_[at(i)] < low - slack, behind = above_[at(i)] > high + slack;
    if (before && behind) return kInfinity;
    if (before) cut.before(i);
    if (behind) cut.behind(i);
    for (int j : items_.next[at(i)]) cut.add(at(j), at(i), ClosureCut::kNever);
  }
  for (std::size_t v = 0; v < items_.values.size(); ++v) {
    if (only_[v] != paid) continue;
    const ItemValue& value = items_.values[v];
    const std::size_t in = cut.add_vertex(), out = cut.add_vertex();
    cut.add(in, out, static_cast<std::int64_t>(value.seconds * scale));
    for (std::size_t m = 0; m <= value.readers.size(); ++m) {
      const std::size_t member = at(m == 0 ? value.owner : value.readers[m - 1]);
      cut.add(member, in, ClosureCut::kNever);
      cut.add(out, member, ClosureCut::kNever);
    }
  }
  const std::int64_t flow = cut();
  return flow >= ClosureCut::kNever ? kInfinity : static_cast<double>(flow) / scale;
}

bool Bounds::possible() const { return cap_ >= least_ * (1 - 1e-12) && all_ + ahead(0, 0, true) <= whole_ * cap_ * (1 + 1e-9); }

double Bounds::ahead(int paid, double crossing, bool others) const {
  if (paid == paying_) return 0;
  return lightest_ * (std::max(others ? 0.0 : crossing, cheapest_[at(paid)]) + rest_[at(paid)]);
}

}  // namespace belfry::cutting
