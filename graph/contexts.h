// What the functions of an OpDef are given: inference, splitting, calling on host memory, building gradients.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// Inference of one node: types of inputs, attributes, and errors that name op, node and values.
class InferContext {
 public:
  InferContext(const Graph& graph, const OpDef& op, std::string name, const Attributes& attributes, const std::vector<ValueId>& inputs);

  int count() const { return static_cast<int>(inputs.size()); }
  bool has(int i) const { return i < count() && inputs[static_cast<std::size_t>(i)].valid(); }
  /// Halves that the op computes with count as f32.
  const TensorType& type(int i) const { return types_[static_cast<std::size_t>(i)]; }
  const Shape& shape(int i) const { return type(i).shape; }
  DType dtype(int i) const { return type(i).dtype; }
  int rank(int i) const { return static_cast<int>(shape(i).size()); }
  /// The attribute as an axis of input `i`, counted from the front; -1 is the last.
  int axis(std::string_view attribute, int i = 0) const;
  /// The attribute as distinct ascending axes of input `i`; all of them where it is empty and `all` is set.
  std::vector<int> axes(std::string_view attribute, int i = 0, bool all = true) const;
  std::vector<TensorType> same_type_as(int i) const { return {type(i)}; }
  void need_float(int i) const;
  void need_integer(int i) const;
  void need_same_dtype() const;
  void need_rank(int i, int rank) const;
  /// The broadcast shape of all inputs.
  Shape broadcast() const;
  /// "[op] message; node 'n', input 'x' f32(2, 3) from 'm' (net.cpp:41)".
  [[noreturn]] void fail(const std::string& message) const;

  const Graph& graph;
  const OpDef& op;
  std::string name;
  const Attributes& attributes;
  const std::vector<ValueId>& inputs;

 private:
  std::vector<TensorType> types_;
};

/// -1 counts from the end; out of range is given back as it is.
inline int from_front(std::int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }
std::vector<int> axes_from_front(const Integers& axes, int rank);

struct SplitContext {
  const OpDef& op;
  const Attributes& attributes;
  std::vector<TensorType> inputs;   ///< of an input left out: a scalar
  std::vector<SplitState> states;   ///< as offered; of an input left out: replicated
  std::vector<TensorType> outputs;
  std::int64_t batch = 1;
};

struct ConstView {
  LocalType type;
  const std::byte* data = nullptr;
  template <class T>
  std::span<const T> as() const { return {reinterpret_cast<const T*>(data), static_cast<std::size_t>(type.elements())}; }
};
struct View {
  LocalType type;
  std::byte* data = nullptr;  ///< null: an optional output that nobody reads
  template <class T>
  std::span<T> as() const { return {reinterpret_cast<T*>(data), static_cast<std::size_t>(type.elements())}; }
};

/// One node on one share, on dense host memory.
struct Call {
  const Attributes& attributes;
  std::span<const ConstView> inputs;
  std::span<const View> outputs;
  std::span<const TensorType> output_types;  ///< with their symbols
  Share share;
  DType dtype() const { return inputs.empty() ? outputs[0].type.dtype : inputs[0].type.dtype; }
};

/// Building a node's gradient (or its form for inference) from its inputs, outputs and their gradients.
class GradientContext {
 public:
  GradientContext(Graph& g, Attributes a, std::vector<Value> inputs, std::vector<Value> outputs = {}, std::vector<Value> output_gradients = {})
      : graph(g), attributes(std::move(a)), inputs_(std::move(inputs)), outputs_(std::move(outputs)),
        gradients_(std::move(output_gradients)), asked_(gradients_.size()) {}

  int count() const { return static_cast<int>(inputs_.size()); }
  Value input(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  Value output(int k = 0) const { return outputs_[static_cast<std::size_t>(k)]; }
  /// Empty where nothing that is differentiated reads output k.
  Value output_gradient(int k = 0) { return asked_[static_cast<std::size_t>(k)] = true, gradients_[static_cast<std::size_t>(k)]; }
  bool asked(int k) const { return asked_[static_cast<std::size_t>(k)]; }
  int axis(std::string_view name) const { return from_front(attributes.integer(name), input(0).rank()); }

  Graph& graph;
  const Attributes attributes;

 private:
  std::vector<Value> inputs_, outputs_, gradients_;
  std::vector<bool> asked_;
};

}  // namespace belfry
