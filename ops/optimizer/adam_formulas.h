// Updates by a mean of gradients over a measure of their size.
#pragma once

#include <belfry/ops/optimizer/formula.h>

namespace belfry::optimizer_formulas {

/// m and v, and what is divided by the root of v.
template <class T>
struct Moments {
  explicit Moments(const Attributes& a) : new1(rest<T>(a, "beta1")), new2(rest<T>(a, "beta2")), epsilon(real<T>(a, "epsilon")) {}
  void move(T g, T* s) const {
    s[0] = s[0] + (g - s[0]) * new1;
    s[1] = s[1] + (g * g - s[1]) * new2;
  }
  T new1, new2, epsilon;
};

template <class T>
struct Adam : Formula<T, 2>, Moments<T> {
  explicit Adam(const Attributes& a) : Moments<T>(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    this->move(g, s);
    return w - *rate * s[0] / (std::sqrt(s[1]) + this->epsilon);
  }
};

template <class T>
struct Amsgrad : Formula<T, 3>, Moments<T> {
  explicit Amsgrad(const Attributes& a) : Moments<T>(a) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    this->move(g, s);
    s[2] = s[2] > s[1] ? s[2] : s[1];
    return w - *rate * s[0] / (std::sqrt(s[2]) + this->epsilon);
  }
};

template <class T>
struct Adamax : Formula<T, 2> {
  explicit Adamax(const Attributes& a) : new1(rest<T>(a, "beta1")), keep2(real<T>(a, "beta2")), epsilon(real<T>(a, "epsilon")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    T size = std::abs(g), kept = keep2 * s[1];
    s[0] = s[0] + (g - s[0]) * new1;
    s[1] = kept > size ? kept : size;
    return w - *rate * s[0] / (s[1] + epsilon);
  }
  T new1, keep2, epsilon;
};

/// The direction instead of w'. Scalars: the correction of m by that of √v, and the latter.
template <class T>
struct Lamb : Formula<T, 2, 2>, Moments<T> {
  explicit Lamb(const Attributes& a) : Moments<T>(a), decay(real<T>(a, "weight_decay")) {}
  T operator()(T w, T g, const T* scalars, T* s) const {
    this->move(g, s);
    return scalars[0] * s[0] / (std::sqrt(s[1]) + this->epsilon * scalars[1]) + decay * w;
  }
  T decay;
};

}  // namespace belfry::optimizer_formulas
