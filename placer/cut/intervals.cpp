#include <belfry/placer/cut/search_internal.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <belfry/placer/cut/bounds_internal.h>

namespace belfry::cutting {

namespace {

/// Loads of intervals that begin at one item, by where they end, as long as some kind's may be within the limit.
struct Row {
  std::vector<std::vector<double>> load;      ///< per kind and length, less one; infinite: over memory
};

class Intervals {
 public:
  Intervals(const Items& items, const std::vector<CutKind>& kinds) : items_(items), kinds_(kinds) {
    main_ = 0;
    for (std::size_t k = 1; k < kinds.size(); ++k)
      if (kinds[k].count > kinds[main_].count) main_ = k;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      stride_.push_back(layers_);
      if (k != main_) layers_ *= kinds[k].count + 1;
    }
  }

  std::optional<Split> best() {
    constexpr int kRounds = 24;
    const double least = std::max(WeightedWork(items_, kinds_).least(), 1e-300);
    double all = 0;  // no interval has a larger load that is finite
    for (const auto& seconds : items_.seconds)
      for (double s : seconds) all += std::isfinite(s) ? s : 0;
    for (const ItemValue& v : items_.values) all += 2 * v.seconds;
    double low = least, high = least * 2;
    for (;; high *= 2) {
      set_rows(high);
      if (within(high)) break;
      if (high > 2 * all) return {};
      low = high;
    }
    for (int i = 0; i < kRounds && high > low * (1 + 1e-7); ++i) {
      const double middle = (low + high) / 2;
      (within(middle) ? high : low) = middle;
    }
    within(high);
    return split();
  }

 private:
  void set_rows(double limit) {
    rows_.assign(at(items_.count), {});
    std::vector<int> inside(items_.values.size());
    for (int i = 0; i < items_.count; ++i) {
      Row& row = rows_[at(i)];
      row.load.resize(kinds_.size());
      std::fill(inside.begin(), inside.end(), 0);
      std::vector<double> seconds(kinds_.size());
      double bytes = 0, moved = 0, sure = 0;  // sure: paid for what comes from before, or is read there
      for (int j = i; j < items_.count; ++j) {
        bytes += items_.bytes[at(j)];
        for (int v : items_.touches[at(j)]) {
          const ItemValue& value = items_.values[at(v)];
          const int others = static_cast<int>(value.readers.size()), before = inside[at(v)]++;
          moved += value.seconds * ((before < others) - (before > 0));
          if (before == 0 && std::min(value.owner, value.readers.front()) < i) sure += value.seconds;
        }
        bool some = false;
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
          seconds[k] += items_.seconds[k][at(j)];
          const bool fits = bytes <= kinds_[k].memory * (1 + 1e-9);
          row.load[k].push_back(fits ? seconds[k] + (kinds_[k].pays ? moved : 0) : kInfinity);
          some |= fits && kinds_[k].count && seconds[k] + (kinds_[k].pays ? sure : 0) <= limit;
        }
        if (!some) break;
      }
    }
  }

  /// The fewest devices of the main kind for each start and number of the others; whether all fits.
  bool within(double cap) {
    const auto states = at(layers_) * at(items_.count + 1);
    fewest_.assign(states, kinds_[main_].count + 1);
    from_.assign(states, {});
    fewest_[0] = 0;
    for (int i = 0; i < items_.count; ++i)
      for (int layer = 0; layer < layers_; ++layer) {
        const int used = fewest_[state(layer, i)];
        if (used > kinds_[main_].count) continue;
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
          if (k == main_ ? used == kinds_[k].count : layer / stride_[k] % (kinds_[k].count + 1) == kinds_[k].count) continue;
          const int to = k == main_ ? layer : layer + stride_[k], now = used + (k == main_);
          const std::vector<double>& loads = rows_[at(i)].load[k];
          for (std::size_t j = 0; j < loads.size(); ++j) {
            const std::size_t s = state(to, i + static_cast<int>(j) + 1);
            if (loads[j] <= cap && now < fewest_[s]) fewest_[s] = now, from_[s] = {i, layer, static_cast<int>(k)};
          }
        }
      }
    last_ = -1;
    for (int layer = 0; layer < layers_ && last_ < 0; ++layer)
      if (fewest_[state(layer, items_.count)] <= kinds_[main_].count) last_ = layer;
    return last_ >= 0;
  }

  Split split() const {
    Split out{0, std::vector<int>(at(items_.count)), std::vector<int>(at(items_.count))};
    std::vector<std::pair<From, int>> parts;  // and their ends, the last first
    for (int end = items_.count, layer = last_; end > 0; end = parts.back().first.start, layer = parts.back().first.layer) parts.emplace_back(from_[state(layer, end)], end);
    std::reverse(parts.begin(), parts.end());
    std::vector<int> used(kinds_.size());
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const auto& [f, end] = parts[part];
      int device = used[at(f.kind)]++;
      for (int k = 0; k < f.kind; ++k) device += kinds_[at(k)].count;
      for (int i = f.start; i < end; ++i) out.device[at(i)] = device, out.part[at(i)] = static_cast<int>(part);
      out.value = std::max(out.value, rows_[at(f.start)].load[at(f.kind)][at(end - f.start - 1)]);
    }
    return out;
  }

  std::size_t state(int layer, int start) const { return at(start) * at(layers_) + at(layer); }

  struct From {
    int start = 0, layer = 0, kind = 0;
  };
  const Items& items_;
  const std::vector<CutKind>& kinds_;
  std::size_t main_ = 0;                      // the kind that has most devices
  std::vector<int> stride_;
  int layers_ = 1, last_ = -1;
  std::vector<Row> rows_;
  std::vector<int> fewest_;
  std::vector<From> from_;
};

}  // namespace

Items coarsened(const Items& items, int count, std::vector<int>& groups) {
  groups.assign(at(items.count), 0);
  std::iota(groups.begin(), groups.end(), 0);
  if (items.count <= count) return items;
  std::vector<double> crossing(at(items.count) + 1);  // of the cut before each item: what begins and what ends there
  for (const ItemValue& v : items.values) {
    crossing[at(std::min(v.owner, v.readers.front())) + 1] += v.seconds;
    crossing[at(std::max(v.owner, v.readers.back())) + 1] -= v.seconds;
  }
  std::partial_sum(crossing.begin(), crossing.end(), crossing.begin());
  std::vector<double> work;
  for (int i = 0; i < items.count; ++i) {
    double least = kInfinity;
    for (const auto& seconds : items.seconds) least = std::min(least, seconds[at(i)]);
    work.push_back(std::isfinite(least) ? least : 0);
  }
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  // One cut per share of the work, the cheapest.
  double done = 0;
  int group = 0;
  for (int i = 0; i < items.count;) {
    int past = i, best = i;
    const double until = done + all / count;
    while (past < items.count && (past == i || done + work[at(past)] <= until)) {
      done += work[at(past++)];
      if (past < items.count && (best == i || crossing[at(past)] <= crossing[at(best)])) best = past;
    }
    for (int j = i; j < past; ++j) groups[at(j)] = group + (j >= best && best > i);
    group = groups[at(past) - 1] + (past == best || best == i);
    i = past;
  }
  std::vector<int> rank(at(groups.back()) + 1);
  std::iota(rank.begin(), rank.end(), 0);
  return merged(items, groups, rank);
}

std::optional<Split> by_intervals(const Items& items, const std::vector<CutKind>& kinds) { return Intervals(items, kinds).best(); }

}  // namespace belfry::cutting
