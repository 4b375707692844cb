// What normalisations share: parameters per channel that may be left out, and an attribute that passes set.
#pragma once

#include <belfry/graph/contexts.h>

namespace belfry {

/// The half, by name, that a layer or group norm of f32 rounds y to; "": none.
inline constexpr const char* kRoundedTo = "rounded_to";

/// Element k of scale or shift; `otherwise` where none is given.
template <class T>
double channel(const ConstView& parameter, std::size_t k, double otherwise) {
  return parameter.data ? static_cast<double>(parameter.as<T>()[k]) : otherwise;
}

}  // namespace belfry
