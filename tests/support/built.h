// What a function of Values computes on given tensors: a graph of its own, run by the references.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <belfry/graph/error.h>

#include "interpreter.h"
#include "nets.h"

namespace belfry::test {

using Builds = std::function<std::vector<Value>(const std::vector<Value>&)>;

inline std::vector<HostTensor> built(const std::vector<HostTensor>& inputs, const Builds& build) {
  Builder b("built");
  std::vector<Value> values;
  Tensors feeds;
  for (const HostTensor& x : inputs) {
    std::string name = "x" + std::to_string(values.size());
    values.push_back(b.input(name, x.dtype(), Shape(x.shape().begin(), x.shape().end())));
    feeds.emplace(name, x);
  }
  std::vector<std::pair<std::string, ValueId>> fetches;
  for (const Value& y : build(values)) fetches.emplace_back(std::to_string(fetches.size()), y.id);
  Tensors got = run_whole(b.graph(), feeds, {}, 1, fetches).fetched;
  std::vector<HostTensor> out;
  for (std::size_t k = 0; k < fetches.size(); ++k) out.push_back(got.at(std::to_string(k)));
  return out;
}

/// What a function says of inputs of these types; "accepted" if it does not throw.
inline std::string refusal(const std::vector<TensorType>& types, const Builds& build) {
  Builder b("refused");
  std::vector<Value> values;
  for (const TensorType& t : types) values.push_back(b.input("x" + std::to_string(values.size()), t.dtype, t.shape));
  try {
    build(values);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

/// 0, 1, 2, … in the given shape.
inline HostTensor counting(const Extents& shape) {
  HostTensor out(f32, shape);
  float next = 0;
  for (float& x : out.data<float>()) x = next++;
  return out;
}

}  // namespace belfry::test
