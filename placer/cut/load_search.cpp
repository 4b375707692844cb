#include <belfry/placer/cut/search_internal.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <belfry/placer/cut/parts_internal.h>

namespace belfry::cutting {

namespace {

/// A prefix that so many devices of each kind can have.
struct Reached {
  double value = 0;             ///< the busiest of them
  double bytes = 0;
  int from = -1;                ///< which one of all
  int kind = -1;                ///< of the last device
  std::uint64_t hash = 0;
};

/// Prefixes reached, in the order in which they were found; looked up by hash. Of their words those of the shortest span are kept.
class Layer {
 public:
  void clear() {
    all_.clear();
    words_.clear();
    slots_.assign(16, -1);
  }
  std::size_t size() const { return all_.size(); }
  const Reached& operator[](std::size_t i) const { return all_[i]; }
  Span span(std::size_t i) const { return all_[i].span; }
  std::uint64_t word(std::size_t i, std::size_t w) const {
    const Kept& k = all_[i];
    return w < k.span.first ? ~std::uint64_t{0} : w < k.span.past ? words_[k.words + w - k.span.first] : 0;
  }
  /// Its number, or -1.
  int find(const Words& prefix, Span span, std::uint64_t hash) const { return slots_[slot(prefix, span, hash)]; }
  /// The number under which it now stands; -1 where one of no larger value stands there.
  int put(const Words& prefix, Span span, const Reached& r) {
    if ((all_.size() + 1) * 2 > slots_.size()) grow();
    int& number = slots_[slot(prefix, span, r.hash)];
    if (number < 0) {
      number = static_cast<int>(all_.size());
      all_.push_back({r, span, words_.size()});
      words_.insert(words_.end(), prefix.begin() + span.first, prefix.begin() + span.past);
    } else {
      if (all_[at(number)].value <= r.value) return -1;
      static_cast<Reached&>(all_[at(number)]) = r;
    }
    return number;
  }

 private:
  struct Kept : Reached {
    Span span;
    std::size_t words = 0;
  };

  bool is(const Kept& k, const Words& prefix, Span span, std::uint64_t hash) const {
    return k.hash == hash && k.span.first == span.first && k.span.past == span.past &&
           std::equal(prefix.begin() + span.first, prefix.begin() + span.past, words_.begin() + static_cast<std::ptrdiff_t>(k.words));
  }
  std::size_t slot(const Words& prefix, Span span, std::uint64_t hash) const {
    std::size_t s = hash & (slots_.size() - 1);
    while (slots_[s] >= 0 && !is(all_[at(slots_[s])], prefix, span, hash)) s = (s + 1) & (slots_.size() - 1);
    return s;
  }
  /// All are different.
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      std::size_t s = all_[i].hash & (slots_.size() - 1);
      while (slots_[s] >= 0) s = (s + 1) & (slots_.size() - 1);
      slots_[s] = static_cast<int>(i);
    }
  }

  std::vector<Kept> all_;
  Words words_;
  std::vector<int> slots_;
};

/// One dynamic programme over prefixes for splits of at most one load.
class LoadSearch {
 public:
  LoadSearch(const Items& items, const std::vector<CutKind>& kinds, Bounds& bounds, std::int64_t& steps) : items_(items), kinds_(kinds), bounds_(bounds), parts_(items, kinds, bounds), steps_(steps) {
    int counts = 1;
    for (const CutKind& k : kinds) {
      stride_.push_back(counts);
      counts *= k.count + 1;
    }
    layers_.resize(at(counts));
    full_ = parts_.full();
    full_span_ = shortest(full_, {0, static_cast<std::uint32_t>(full_.size())});
    prefix_.resize(full_.size());
    for (double b : items.bytes) all_bytes_ += b;
  }

  /// The best split of load `cap` or less, if there is one. `finished` is false where steps ran out.
  std::optional<Split> operator()(double cap, bool& finished) {
    cap_ = cap;
    finished = true;
    best_.reset();
    bounds_.set_cap(cap);
    if (!bounds_.possible()) return {};
    for (Layer& l : layers_) l.clear();
    layers_[0].put(Words(parts_.words()), {}, {});
    for (std::size_t t = 0; finished && t < layers_.size(); ++t) {
      set_left(t);
      for (std::size_t i = 0; finished && i < layers_[t].size(); ++i) finished = expand(t, i);
    }
    return best_;
  }

 private:
  /// Of the devices, behind what a layer has and one more.
  struct Left {
    bool all = false, none = false;           ///< of the kind, before that one
    double room = 0, memory = 0;
    int paid = 0;                             ///< devices that had their part
    bool others = false;                      ///< some that do not pay are left
  };

  int used(std::size_t layer, std::size_t kind) const { return static_cast<int>(layer) / stride_[kind] % (kinds_[kind].count + 1); }

  void set_left(std::size_t t) {
    left_.assign(kinds_.size(), {});
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      Left& l = left_[k];
      l.all = used(t, k) == 0;
      l.none = used(t, k) == kinds_[k].count;
      for (std::size_t j = 0; !l.none && j < kinds_.size(); ++j) {
        const int u = used(t + at(stride_[k]), j), left = kinds_[j].count - u;
        l.room += bounds_.weight(j) * left;
        if (left) l.memory += kinds_[j].memory * left;
        if (kinds_[j].pays) l.paid += u;
        else l.others |= left > 0;
      }
    }
  }

  bool expand(std::size_t t, std::size_t i) {
    const Reached from = layers_[t][i];
    if (from.value > cap_) return true;
    const Span span = layers_[t].span(i);
    for (std::size_t w = std::min(span.first, span_.first); w < std::max(span.past, span_.past); ++w) prefix_[w] = layers_[t].word(i, w);
    span_ = span;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {  // as well with one device less
      if (left_[k].all) continue;
      const Layer& less = layers_[t - at(stride_[k])];
      if (int other = less.find(prefix_, span_, from.hash); other >= 0 && less[at(other)].value <= from.value) return true;
    }
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (!left_[k].none && !follow(t + at(stride_[k]), i, k, from)) return false;
    return true;
  }

  /// What can be on a device of kind k behind the prefix.
  bool follow(std::size_t next, std::size_t i, std::size_t k, const Reached& from) {
    const Left& left = left_[k];
    auto visit = [&](const Part& p) {
      if (p.load > cap_) return;
      if (bounds_.all() - p.work + bounds_.ahead(left.paid, p.crossing, left.others) > left.room * cap_ + 1e-9 * bounds_.all()) return;
      if (all_bytes_ - from.bytes - p.bytes > left.memory + 1e-9 * all_bytes_) return;
      reach(next, {std::max(from.value, p.load), from.bytes + p.bytes, static_cast<int>(i), static_cast<int>(k), p.hash}, *p.prefix, shortest(*p.prefix, p.span));
    };
    const double least = (bounds_.all() + bounds_.ahead(left.paid, 0, left.others) - left.room * cap_) - 1e-9 * bounds_.all();
    return parts_.walk(prefix_, span_, k, {cap_, least}, steps_, std::cref(visit));
  }

  void reach(std::size_t layer, const Reached& r, const Words& prefix, Span span) {
    const int number = layers_[layer].put(prefix, span, r);
    if (number < 0 || span.first != full_span_.first || prefix.back() != full_.back()) return;
    best_ = split(layer, number);
    cap_ = std::min(cap_, r.value * kLess);
  }

  /// Devices by following the prefixes back.
  Split split(std::size_t layer, int i) const {
    Split out{layers_[layer][at(i)].value, std::vector<int>(at(items_.count), -1), std::vector<int>(at(items_.count), -1)};
    int part = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k) part += used(layer, k);
    while (layers_[layer][at(i)].kind >= 0) {
      const Reached& r = layers_[layer][at(i)];
      const auto k = at(r.kind);
      int device = used(layer, k) - 1;
      for (std::size_t j = 0; j < k; ++j) device += kinds_[j].count;
      const std::size_t before = layer - at(stride_[k]);
      --part;
      for (int item = 0; item < items_.count; ++item) {
        const std::size_t w = at(item) / 64;
        if ((layers_[layer].word(at(i), w) & ~layers_[before].word(at(r.from), w)) >> (item % 64) & 1) out.device[at(item)] = device, out.part[at(item)] = part;
      }
      i = r.from;
      layer = before;
    }
    return out;
  }

  const Items& items_;
  const std::vector<CutKind>& kinds_;
  Bounds& bounds_;
  Parts parts_;
  std::int64_t& steps_;
  std::vector<int> stride_;                   // of a kind's number in that of a layer
  std::vector<Layer> layers_;
  std::vector<Left> left_;                    // per kind that the last device is of
  std::optional<Split> best_;
  Words full_, prefix_;                       // everything; what is being followed
  Span full_span_, span_;
  double cap_ = 0, all_bytes_ = 0;
};

}  // namespace

Answer least_load(const Items& items, const std::vector<CutKind>& kinds, const std::optional<Split>& known, std::int64_t& steps) {
  constexpr double kMostLayers = 100'000;
  Bounds bounds(items, kinds);
  Answer out{known, bounds.least()};
  double layers = 1;
  for (const CutKind& k : kinds) layers *= k.count + 1;
  out.finished = layers <= kMostLayers;
  if (!out.finished) return out;
  LoadSearch search(items, kinds, bounds, steps);
  const double first = out.bound, last = known ? known->value * kLess : kInfinity;
  for (int i = 0; first <= last; ++i) {
    // Towards the known split in few steps, since each search begins anew; or ever further, if there is none.
    // The last of the few is the known one itself: first + (last - first) may be less.
    const double cap = known ? i < 2 ? first + (last - first) * (i ? 0.5 : 0.125) : last : i < 40 ? first * (1 + 0.001 * std::pow(2.0, i)) : kInfinity;
    bool finished = true;
    std::optional<Split> found = search(cap, finished);
    if (found) out.best = found;
    out.finished = finished;
    if (!finished) return out;
    out.bound = found ? found->value : std::min(cap, last);
    if (found || cap >= last) break;
  }
  if (out.best) out.bound = std::min(out.bound, out.best->value);
  return out;
}

}  // namespace belfry::cutting
