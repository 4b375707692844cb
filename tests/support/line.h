// What tests of training share: a net of two variables, its data, and what ends a training in the midst of it.
#pragma once

#include <cstdint>
#include <utility>

#include <belfry/belfry.h>

namespace belfry::test {

/// A line through points of two columns; plain descent, which counts no steps in a variable.
inline Graph line(double rate = 0.05) {
  Builder b("line");
  Value x = b.input("x", f32, {kBatch}), y = b.input("y", f32, {kBatch});
  Value error = x * b.variable("slope", {}) + b.variable("offset", {}) - y;
  b.metric("accuracy", mean(less(abs(error), abs(x))));
  b.minimize(identity(mean(error * error), "loss"), Sgd{.learning_rate = static_cast<float>(rate)});
  return std::move(b).build();
}

inline DataSet points(std::int64_t count) {
  DataSet out;
  HostTensor x(f32, {count}), y(f32, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = static_cast<float>(i % 7) / 7;
    x.data<float>()[static_cast<std::size_t>(i)] = at;
    y.data<float>()[static_cast<std::size_t>(i)] = 2 * at - 1 + 0.01f * static_cast<float>(i % 3);
  }
  out.columns.emplace("x", std::move(x));
  out.columns.emplace("y", std::move(y));
  return out;
}

/// Thrown by callbacks.
struct Stop {};

}  // namespace belfry::test
