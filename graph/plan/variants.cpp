#include <belfry/graph/plan/variants.h>

#include <algorithm>
#include <utility>

namespace belfry {

void Variants::reset(std::size_t size) {
  size_ = size;
  places_.clear();
  held_.clear();
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
  if (held_.size() == size_) return i;
  const auto at = std::lower_bound(places_.begin(), places_.end(), static_cast<int>(i));
  return at != places_.end() && *at == static_cast<int>(i) ? static_cast<std::size_t>(at - places_.begin()) : held_.size();
}

Variant& Variants::insert(std::size_t i) {
  const auto place = std::lower_bound(places_.begin(), places_.end(), static_cast<int>(i));
  const auto at = held_.emplace(held_.begin() + (place - places_.begin()));
  if (held_.size() == size_) places_.clear();
  else places_.insert(place, static_cast<int>(i));
  return *at;
}

std::vector<Variant>& Variants::whole() {
  for (std::size_t i = 0; i < size_; ++i) (*this)[i];
  return held_;
}

const Variant& Variants::nothing() {
  static const Variant none;
  return none;
}

}  // namespace belfry
