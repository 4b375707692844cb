// One node of one of ONNX's tests as a builder sees it: its inputs as values or as tensors, and its attributes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/builder/builder.h>

#include "onnx_reader.h"

namespace belfry::test::onnx {

/// Thrown by a builder for what has no counterpart here: the kind of reason, and the reason.
struct LeftOut {
  std::string kind, reason;
};
inline LeftOut feature_missing(std::string feature) { return {"feature missing", std::move(feature)}; }

/// What stands under a name of ONNX's graph: a tensor that is known, a value, or both once the tensor is fed.
struct Slot {
  std::optional<HostTensor> tensor;
  Value value;
};

/// A graph on its way from ONNX to a builder.
struct Translation {
  Builder builder{"onnx"};
  std::int64_t opset = 0;
  std::map<std::string, Slot> slots;
  std::map<std::string, HostTensor> feeds;
  bool training = false;
};

/// What a builder is given: values of inputs, which are fed where they are known, and the tensors of those that only say how.
class Case {
 public:
  Case(Translation& whole, const Node& node) : whole(whole), node_(node) {}

  std::size_t count() const { return node_.inputs.size(); }
  bool has(std::size_t i) const { return i < count() && !node_.inputs[i].empty(); }
  Value operator()(std::size_t i = 0) const;
  /// The value of an input, or none.
  Value optional(std::size_t i) const { return has(i) ? (*this)(i) : Value{}; }
  std::vector<Value> all() const;
  std::vector<std::int64_t> sizes(std::size_t i = 0) const;
  const HostTensor& tensor(std::size_t i) const;
  Integers integers(std::size_t i) const;
  std::vector<double> numbers(std::size_t i) const;
  double number(std::size_t i) const { return numbers(i).at(0); }

  bool has(const char* name) const { return node_.attributes.contains(name); }
  std::int64_t integer(const char* name, std::int64_t otherwise) const { return has(name) ? node_.attributes.at(name).integer : otherwise; }
  bool flag(const char* name) const { return integer(name, 0) != 0; }
  int axis(std::int64_t otherwise) const { return static_cast<int>(integer("axis", otherwise)); }
  double real(const char* name, double otherwise) const { return has(name) ? node_.attributes.at(name).real : otherwise; }
  std::string text(const char* name, const char* otherwise) const { return has(name) ? node_.attributes.at(name).text : otherwise; }
  Integers list(const char* name, const Integers& otherwise) const { return has(name) ? node_.attributes.at(name).integers : otherwise; }
  /// What later versions of an op have as its input `i` and earlier ones as an attribute.
  Integers integers(std::size_t i, const char* name) const { return has(i) ? integers(i) : list(name, {}); }
  double number(std::size_t i, const char* name, double otherwise) const { return has(i) ? number(i) : real(name, otherwise); }
  std::size_t outputs() const { return node_.outputs.size(); }

  Value constant(HostTensor tensor) const { return belfry::constant(whole.builder.graph(), std::move(tensor)); }
  Value add(const char* op, const std::vector<Value>& inputs, const Attributes& attributes) const { return whole.builder.graph().add(op, inputs, attributes); }

  Translation& whole;

 private:
  const Node& node_;
};

}  // namespace belfry::test::onnx
