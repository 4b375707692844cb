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

/// Numbers of a set's word, ascending.
template <class F>
void for_each(std::size_t word, std::uint64_t bits, F f) {
  for (; bits; bits &= bits - 1) f(static_cast<int>(word) * 64 + std::countr_zero(bits));
}

}  // namespace

Span shortest(const Words& set, Span span) {
  while (span.first < span.past && ~set[span.first] == 0) ++span.first;
  while (span.first < span.past && set[span.past - 1] == 0) --span.past;
  return span;
}

void Sparse::set(int number, bool has) {
  auto put = [](std::uint64_t& word, std::size_t bit, bool has) { word = (word & ~(std::uint64_t{1} << bit)) | std::uint64_t{has} << bit; };
  const std::size_t w = at(number) / 64;
  put(words_[w], at(number) % 64, has);
  put(some_[w / 64], w % 64, words_[w] != 0);
}

template <class F>
void Sparse::for_each(F f) const {
  for (std::size_t s = 0; s < some_.size(); ++s)
    belfry::cutting::for_each(s, some_[s], [&](int w) { belfry::cutting::for_each(at(w), words_[at(w)], f); });
}

Parts::Parts(const Items& items, const std::vector<CutKind>& kinds, const Bounds& bounds)
    : items_(items), kinds_(kinds), bounds_(bounds), below_(at(items.count)), key_(at(items.count)), now_(words()), ready_(at(items.count)), crossing_(items.values.size()), work_(words()) {
  for (int i = items.count; i-- > 0;) {
    key_[at(i)] = mixed(static_cast<std::uint64_t>(i));
    // At least the heaviest of its followers goes with it.
    for (int j : items.next[at(i)]) below_[at(i)] = std::max(below_[at(i)], below_[at(j)]);
    below_[at(i)] += bounds.work(i);
  }
  if (!bounds.below().empty()) below_ = bounds.below();
  for (const ItemValue& v : items.values) values_.push_back({v.seconds, static_cast<int>(v.readers.size())});
  for (int i = 0; i < items.count; ++i) {
    missing_.push_back(static_cast<int>(items.before[at(i)].size()));
    ready_.set(i, missing_.back() == 0);
  }
  full_work_.push_back(0);
  for (int i = 0; i < items.count;) {
    double word = 0;
    for (const int past = std::min(i + 64, items.count); i < past; ++i) word += bounds.work(i);
    full_work_.push_back(full_work_.back() + word);
  }
}

Words Parts::full() const {
  Words out(words());
  for (int i = 0; i < items_.count; ++i) out[at(i) / 64] |= std::uint64_t{1} << (i % 64);
  return out;
}

/// A walk ends where it began, and of one prefix and the next most items are the same.
void Parts::start(const Words& prefix, Span span) {
  for (std::size_t w = std::min(span.first, span_.first); w < std::max(span.past, span_.past); ++w) {
    if (now_[w] == prefix[w]) continue;
    work_[w] = 0;
    for_each(w, prefix[w], [&](int i) { work_[w] += bounds_.work(i); });
    for_each(w, now_[w] ^ prefix[w], [&](int i) { turn(i, has(prefix, i)); });
    now_[w] = prefix[w];
  }
  span_ = span;
  part_ = {};
  part_.prefix = &now_;
  part_.span = span;
  part_.work = full_work_[span.first];
  for (std::size_t w = span.first; w < span.past; ++w) part_.work += work_[w];
  part_.hash = hash_;
  sure_ = 0;
  open_.clear();
  ready_.for_each([&](int i) { open_.push_back(i); });
  crossing_.for_each([&](int v) { part_.crossing += values_[at(v)].seconds; });
}

/// An item enters the prefix, or leaves it.
void Parts::turn(int item, bool enters) {
  const int more = enters ? 1 : -1;
  for (int v : items_.touches[at(item)]) {
    Value& value = values_[at(v)];
    value.prefixed += more, value.outside += more;
    crossing_.set(v, value.prefixed > 0 && value.prefixed <= value.readers);
  }
  ready_.set(item, !enters && missing_[at(item)] == 0);
  for (int j : items_.next[at(item)]) ready_.set(j, (missing_[at(j)] -= more) == 0);
  hash_ ^= key_[at(item)];
}

bool Parts::walk(const Words& prefix, Span span, std::size_t kind, const Limits& limits, std::int64_t& steps, const std::function<void(const Part&)>& visit) {
  kind_ = kind;
  pays_ = kinds_[kind].pays;
  limits_ = limits;
  steps_ = &steps;
  visit_ = &visit;
  start(prefix, span);
  return step(0, open_.size());
}

/// Visits the part as it is, then all that have more of the open items first … past: by the first one that they have.
bool Parts::step(std::size_t first, std::size_t past) {
  if (--*steps_ < 0) return false;
  if (first > 0) (*visit_)(part_);
  const Part part = part_;
  const double sure = sure_;
  std::size_t left_out = first;
  bool finished = true;
  for (std::size_t k = first; finished && k < past; ++k) {
    const int item = open_[k];
    if (fits(item)) {
      const double sure_without = sure_;
      add(item);
      const std::size_t list = open_.size();
      open_item(item, k + 1, past);
      finished = step(list, open_.size());
      open_.resize(list);
      for (int j : items_.next[at(item)]) ++missing_[at(j)];
      remove(item);
      part_ = part;
      sure_ = sure_without;
    }
    exclude(item);
    left_out = k + 1;
    if (sure_ > limits_.cap || bounds_.all() - below_[at(item)] < limits_.least_work) break;
  }
  for (std::size_t k = first; k < left_out; ++k)
    for (int v : items_.touches[at(open_[k])]) --values_[at(v)].outside;
  sure_ = sure;
  return finished;
}

/// Whether the part with the item can be within the limits.
bool Parts::fits(int item) const {
  const double seconds = items_.seconds[kind_][at(item)];
  if (!std::isfinite(seconds) || seconds > limits_.cap || part_.bytes + items_.bytes[at(item)] > kinds_[kind_].memory * (1 + 1e-9)) return false;
  return sure_with(item) <= limits_.cap;
}

double Parts::sure_with(int item) const {
  double out = sure_ + items_.seconds[kind_][at(item)];
  if (!pays_) return out;
  for (int v : items_.touches[at(item)])
    if (const Value& value = values_[at(v)]; value.inside == 0 && value.outside > 0) out += value.seconds;
  return out;
}

/// Puts a list behind the others: the open items first … past, and those for which `item` was the last that was missing; ascending.
void Parts::open_item(int item, std::size_t first, std::size_t past) {
  const std::size_t list = open_.size();
  for (std::size_t k = first; k < past; ++k) open_.push_back(open_[k]);
  for (int j : items_.next[at(item)]) {
    if (--missing_[at(j)] > 0) continue;
    open_.push_back(j);
    for (std::size_t k = open_.size() - 1; k > list && open_[k - 1] > open_[k]; --k) std::swap(open_[k - 1], open_[k]);
  }
}

void Parts::add(int item) {
  sure_ = sure_with(item);
  now_[at(item) / 64] |= std::uint64_t{1} << (item % 64);
  part_.span.past = std::max(part_.span.past, static_cast<std::uint32_t>(item / 64 + 1));
  part_.hash ^= key_[at(item)];
  part_.work += bounds_.work(item);
  part_.bytes += items_.bytes[at(item)];
  part_.load += items_.seconds[kind_][at(item)];
  for (int v : items_.touches[at(item)]) {
    Value& value = values_[at(v)];
    const int inside = value.inside++, prefixed = value.prefixed++;
    part_.crossing += value.seconds * ((prefixed < value.readers) - (prefixed > 0));
    if (pays_) part_.load += value.seconds * ((inside < value.readers) - (inside > 0));
  }
}

/// All but sums, which are put back by copies, so that nothing is rounded away.
void Parts::remove(int item) {
  now_[at(item) / 64] &= ~(std::uint64_t{1} << (item % 64));
  for (int v : items_.touches[at(item)]) {
    --values_[at(v)].inside;
    --values_[at(v)].prefixed;
  }
}

void Parts::exclude(int item) {
  for (int v : items_.touches[at(item)])
    if (Value& value = values_[at(v)]; value.outside++ == 0 && value.inside > 0 && pays_) sure_ += value.seconds;
}

}  // namespace belfry::cutting
