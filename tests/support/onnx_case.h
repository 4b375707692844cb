// One of ONNX's node tests as a builder sees it: its inputs as values or as tensors, and its attributes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/builder/builder.h>

#include "interpreter.h"
#include "onnx_reader.h"

namespace belfry::test::onnx {

/// Thrown by a builder for what has no counterpart here: the reason.
struct LeftOut {
  std::string reason;
};

/// What a builder is given: values of inputs that are fed, and the tensors of those that only say how.
class Case {
 public:
  Case(Builder& b, const Node& node, std::vector<HostTensor> inputs) : builder(b), node_(node) {
    std::size_t next = 0;
    for (const std::string& name : node.inputs) tensors_.push_back(name.empty() ? std::nullopt : std::optional(inputs.at(next++)));
    values_.resize(tensors_.size());
  }
  std::size_t count() const { return tensors_.size(); }
  bool has(std::size_t i) const { return i < count() && tensors_[i].has_value(); }
  Value operator()(std::size_t i = 0) {
    if (!values_.at(i)) {
      std::string name = "input_" + std::to_string(i);
      const HostTensor& x = tensors_[i].value();
      values_[i] = builder.input(name, x.dtype(), Shape(x.shape().begin(), x.shape().end()));
      feeds.emplace(name, x);
    }
    return values_[i];
  }
  std::vector<Value> all() {
    std::vector<Value> out;
    for (std::size_t i = 0; i < count(); ++i) out.push_back((*this)(i));
    return out;
  }
  const HostTensor& tensor(std::size_t i) const { return tensors_.at(i).value(); }
  Integers integers(std::size_t i) const {
    HostTensor wide = converted(tensor(i), i64);
    return {wide.data<std::int64_t>().begin(), wide.data<std::int64_t>().end()};
  }
  double number(std::size_t i) const { return converted(tensor(i), f64).data<double>()[0]; }
  bool has(const char* name) const { return node_.attributes.contains(name); }
  std::int64_t integer(const char* name, std::int64_t fallback) const { return has(name) ? node_.attributes.at(name).integer : fallback; }
  int axis(std::int64_t fallback) const { return static_cast<int>(integer("axis", fallback)); }
  double real(const char* name, double fallback) const { return has(name) ? node_.attributes.at(name).real : fallback; }
  std::string text(const char* name, const char* fallback) const { return has(name) ? node_.attributes.at(name).text : fallback; }
  Integers list(const char* name, Integers fallback) const { return has(name) ? node_.attributes.at(name).integers : fallback; }
  std::size_t outputs() const { return node_.outputs.size(); }

  Builder& builder;
  Tensors feeds;
  bool training = false;

 private:
  const Node& node_;
  std::vector<std::optional<HostTensor>> tensors_;
  std::vector<Value> values_;
};

}  // namespace belfry::test::onnx
