#include <belfry/graph/plan/variants.h>

#include <algorithm>
#include <utility>

namespace belfry {

Slot Slot::of(Region region, const std::vector<std::int64_t>& places) {
  Slot out{region, places.at(0), places.size() > 1 ? places[1] - places[0] : 0, {}};
  for (std::size_t k = 2; k < places.size(); ++k)
    if (places[k] - places[k - 1] != out.stride) return {region, places[0], 0, {places.begin() + 1, places.end()}};
  return out;
}

std::optional<std::int64_t> Slot::at(std::size_t number) const {
  if (number == 0 || !more.empty()) return number == 0 ? offset : number <= more.size() ? std::optional(more[number - 1]) : std::nullopt;
  const __int128 out = offset + static_cast<__int128>(number) * stride;
  const auto most = static_cast<__int128>(1) << 62;
  return out < most && -out < most ? std::optional(static_cast<std::int64_t>(out)) : std::nullopt;
}

void Variants::reset(std::size_t size) {
  size_ = size;
  places_.clear();
  used_ = 0;
}

void Variants::resize(std::size_t size, const Variant& more) {
  Variants out;
  out.reset(size);
  for (std::size_t i = 0; i < size; ++i) {
    const Variant& v = i < size_ ? std::as_const(*this)[i] : more;
    if (!v.kernel.empty() || v.scratch_bytes || v.scratch != Slot{} || !v.outputs.empty() || !v.in_place) out[i] = v;
  }
  *this = std::move(out);
}

std::size_t Variants::find(std::size_t i) const {
  if (used_ == size_) return i;
  const auto at = std::lower_bound(places_.begin(), places_.end(), static_cast<int>(i));
  return at != places_.end() && *at == static_cast<int>(i) ? static_cast<std::size_t>(at - places_.begin()) : used_;
}

Variant& Variants::insert(std::size_t i) {
  const auto place = std::lower_bound(places_.begin(), places_.end(), static_cast<int>(i));
  const auto k = static_cast<std::size_t>(place - places_.begin());
  if (used_ == held_.size()) held_.emplace_back();
  Variant& fresh = held_[used_];
  fresh.kernel.clear();
  fresh.scratch_bytes = 0;
  fresh.scratch = {};
  fresh.outputs.clear();
  fresh.in_place = true;
  const auto begin = held_.begin();
  std::rotate(begin + static_cast<std::ptrdiff_t>(k), begin + static_cast<std::ptrdiff_t>(used_), begin + static_cast<std::ptrdiff_t>(used_) + 1);
  if (++used_ == size_) places_.clear();
  else places_.insert(place, static_cast<int>(i));
  return held_[k];
}

std::vector<Variant>& Variants::whole() {
  for (std::size_t i = 0; i < size_; ++i) (*this)[i];
  held_.resize(used_);
  return held_;
}

const Variant& Variants::nothing() {
  static const Variant none;
  return none;
}

}  // namespace belfry
