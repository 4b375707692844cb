// What the formulas of the updates share, one element at a time: references and kernels call them.
#pragma once

#include <cmath>

#include <belfry/graph/attributes.h>

namespace belfry::optimizer_formulas {

/// Each gives w' of w, its gradient g and the scalars (the rate first), and changes the slots s in place.
template <class T, int slots, int scalars = 1>
struct Formula {
  using Real = T;
  static constexpr int kSlots = slots, kScalars = scalars;
};

template <class T>
T real(const Attributes& a, const char* name) { return static_cast<T>(a.real(name)); }
/// 1 − x, rounded once.
template <class T>
T rest(const Attributes& a, const char* name) { return static_cast<T>(1 - a.real(name)); }

}  // namespace belfry::optimizer_formulas
