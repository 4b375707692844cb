#include <belfry/placer/cut/parts_internal.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace belfry::cutting {

namespace {

/// splitmix64: equal on every machine.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool has(const Words& set, int item) { return set[at(item) / 64] >> (item % 64) & 1; }

void set(Words& set, int item, bool has) {
  const std::uint64_t bit = std::uint64_t{1} << (item % 64);
  set[at(item) / 64] = has ? set[at(item) / 64] | bit : set[at(item) / 64] & ~bit;
}

/// Numbers of a set's word, ascending.
template <class F>
void for_each(std::size_t word, std::uint64_t bits, F f) {
  for (; bits; bits &= bits - 1) f(static_cast<int>(word) * 64 + std::countr_zero(bits));
}

}  // namespace

Parts::Parts(const Items& items, const std::vector<CutKind>& kinds, const Bounds& bounds) : items_(items), kinds_(kinds), bounds_(bounds), below_(at(items.count)), key_(at(items.count)) {
  for (int i = items.count; i-- > 0;) {
    key_[at(i)] = mixed(static_cast<std::uint64_t>(i));
    // At least the heaviest of its followers goes with it.
    for (int j : items.next[at(i)]) below_[at(i)] = std::max(below_[at(i)], below_[at(j)]);
    below_[at(i)] += bounds.work(i);
  }
  if (!bounds.below().empty()) below_ = bounds.below();
}

Words Parts::full() const {
  Words out(words());
  for (int i = 0; i < items_.count; ++i) out[at(i) / 64] |= std::uint64_t{1} << (i % 64);
  return out;
}

void Parts::start(const Words& prefix) {
  if (now_.empty()) {
    now_.resize(words());
    inside_.resize(items_.values.size());
    prefixed_.resize(items_.values.size());
    outside_.resize(items_.values.size());
    ready_.resize(words());
    crossing_.resize((items_.values.size() + 63) / 64);
    work_.resize(words());
    for (const auto& before : items_.before) missing_.push_back(static_cast<int>(before.size()));
    for (int i = 0; i < items_.count; ++i) set(ready_, i, missing_[at(i)] == 0);
  }
  // A walk ends where it began, and of one prefix and the next most items are the same.
  for (std::size_t w = 0; w < prefix.size(); ++w) {
    if (now_[w] == prefix[w]) continue;
    work_[w] = 0;
    for_each(w, prefix[w], [&](int i) { work_[w] += bounds_.work(i); });
    for_each(w, now_[w] ^ prefix[w], [&](int i) {
      const int more = has(prefix, i) ? 1 : -1;
      for (int v : items_.touches[at(i)]) {
        prefixed_[at(v)] += more, outside_[at(v)] += more;
        set(crossing_, v, prefixed_[at(v)] > 0 && prefixed_[at(v)] <= static_cast<int>(items_.values[at(v)].readers.size()));
      }
      for (int j : items_.next[at(i)]) set(ready_, j, (missing_[at(j)] -= more) == 0);
      hash_ ^= key_[at(i)];
    });
  }
  now_ = prefix;
  part_ = {};
  part_.prefix = &now_;
  part_.hash = hash_;
  sure_ = before_ = 0;
  open_.clear();
  for (std::size_t w = 0; w < prefix.size(); ++w) {
    before_ += work_[w];
    for_each(w, ready_[w] & ~prefix[w], [&](int i) { open_.push_back(i); });
  }
  for (std::size_t w = 0; w < crossing_.size(); ++w) for_each(w, crossing_[w], [&](int v) { part_.crossing += items_.values[at(v)].seconds; });
  part_.work = before_;
}

bool Parts::walk(const Words& prefix, std::size_t kind, const Limits& limits, std::int64_t& steps, const std::function<void(const Part&)>& visit) {
  kind_ = kind;
  pays_ = kinds_[kind].pays;
  limits_ = limits;
  steps_ = &steps;
  visit_ = &visit;
  start(prefix);
  return step(0, open_.size());
}

/// Visits the part as it is, then all that have more of the open items first … past: by the first one that they have.
bool Parts::step(std::size_t first, std::size_t past) {
  if (--*steps_ < 0) return false;
  if (first > 0) (*visit_)(part_);
  const Part part = part_;
  const double sure = sure_;
  double sure_now = sure;
  std::size_t left_out = first;
  bool finished = true;
  for (std::size_t k = first; finished && k < past; ++k) {
    const int item = open_[k];
    if (const double s = items_.seconds[kind_][at(item)]; std::isfinite(s) && s <= limits_.cap && part.bytes + items_.bytes[at(item)] <= kinds_[kind_].memory * (1 + 1e-9)) {
      add(item);
      if (sure_ <= limits_.cap) {
        const std::size_t list = open_.size();
        for (std::size_t rest = k + 1; rest < past; ++rest) open_.push_back(open_[rest]);
        for (int j : items_.next[at(item)])
          if (--missing_[at(j)] == 0) open_.push_back(j);
        std::sort(open_.begin() + static_cast<std::ptrdiff_t>(list), open_.end());
        finished = step(list, open_.size());
        open_.resize(list);
        for (int j : items_.next[at(item)]) ++missing_[at(j)];
      }
      remove(item);
      part_ = part;
    }
    sure_ = sure_now;
    exclude(item);
    sure_now = sure_;
    left_out = k + 1;
    if (sure_ > limits_.cap || bounds_.all() - below_[at(item)] < limits_.least_work) break;
  }
  for (std::size_t k = first; k < left_out; ++k)
    for (int v : items_.touches[at(open_[k])]) --outside_[at(v)];
  sure_ = sure;
  return finished;
}

void Parts::add(int item) {
  now_[at(item) / 64] |= std::uint64_t{1} << (item % 64);
  part_.hash ^= key_[at(item)];
  part_.work += bounds_.work(item);
  part_.bytes += items_.bytes[at(item)];
  const double seconds = items_.seconds[kind_][at(item)];
  part_.load += seconds;
  sure_ += seconds;
  for (int v : items_.touches[at(item)]) {
    const ItemValue& value = items_.values[at(v)];
    const int others = static_cast<int>(value.readers.size());
    const int before = inside_[at(v)]++;
    const double moved = value.seconds * ((before < others) - (before > 0));
    const int prefixed = prefixed_[at(v)]++;
    part_.crossing += value.seconds * ((prefixed < others) - (prefixed > 0));
    if (!pays_) continue;
    part_.load += moved;
    if (before == 0 && outside_[at(v)] > 0) sure_ += value.seconds;
  }
}

/// All but sums, which are put back by copies, so that nothing is rounded away.
void Parts::remove(int item) {
  now_[at(item) / 64] &= ~(std::uint64_t{1} << (item % 64));
  for (int v : items_.touches[at(item)]) {
    --inside_[at(v)];
    --prefixed_[at(v)];
  }
}

void Parts::exclude(int item) {
  for (int v : items_.touches[at(item)])
    if (outside_[at(v)]++ == 0 && inside_[at(v)] > 0 && pays_) sure_ += items_.values[at(v)].seconds;
}

}  // namespace belfry::cutting
