// What the references of normalisations share: parameters per channel that may be left out.
#pragma once

#include <belfry/graph/contexts.h>

namespace belfry {

/// Element k of scale or shift; `otherwise` where none is given.
template <class T>
double channel(const ConstView& parameter, std::size_t k, double otherwise) {
  return parameter.data ? static_cast<double>(parameter.as<T>()[k]) : otherwise;
}

}  // namespace belfry
