// Updates along the gradient or a mean of gradients.
#pragma once

#include <belfry/ops/optimizer/formula.h>

namespace belfry::optimizer_formulas {

template <class T>
struct Sgd : Formula<T, 0> {
  explicit Sgd(const Attributes&) {}
  T operator()(T w, T g, const T* rate, T*) const { return w - *rate * g; }
};

template <class T>
struct Momentum : Formula<T, 1> {
  explicit Momentum(const Attributes& a) : keep(real<T>(a, "momentum")), nesterov(a.flag("nesterov")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    s[0] = keep * s[0] + g;
    return w - *rate * (nesterov ? g + keep * s[0] : s[0]);
  }
  T keep;
  bool nesterov;
};

template <class T>
struct Lion : Formula<T, 1> {
  explicit Lion(const Attributes& a) : keep1(real<T>(a, "beta1")), new1(rest<T>(a, "beta1")), keep2(real<T>(a, "beta2")), new2(rest<T>(a, "beta2")) {}
  T operator()(T w, T g, const T* rate, T* s) const {
    T mixed = s[0] * keep1 + g * new1, sign = mixed > 0 ? T{1} : mixed < 0 ? T{-1} : mixed;
    s[0] = s[0] * keep2 + g * new2;
    return w - *rate * sign;
  }
  T keep1, new1, keep2, new2;
};

/// w is the average, g the new value.
template <class T>
struct MovingAverage : Formula<T, 0> {
  explicit MovingAverage(const Attributes&) {}
  T operator()(T w, T g, const T* weight, T*) const { return w - *weight * (w - g); }
};

}  // namespace belfry::optimizer_formulas
