// Which products and convolutions kernels take with their biases, and which convolutions have kernels of their own on GPUs.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <belfry/ops/build.h>
#include <belfry/ops/windows.h>

namespace belfry::fusion_rules {

/// The node of op `op` that makes a value as its only output.
inline std::optional<NodeId> maker(const Graph& g, ValueId v, std::string_view op) {
  if (!v.valid() || g.node(v.node).op->name != op || g.node(v.node).types.size() != 1) return {};
  return v.node;
}

/// Whether a bias of several axes lies along those that a product has of its second operand alone, as one row: heads and their features.
inline bool along_columns(const Graph& g, const Node& product, const Shape& bias) {
  if (product.op->name != "matmul" || bias.size() < 2 || bias.size() > product.types[0].shape.size()) return false;
  const Letters l = letters_of(product.attributes.text("equation"), static_cast<int>(g.type(product.inputs[0]).shape.size()), static_cast<int>(g.type(product.inputs[1]).shape.size()));
  const std::string own = l.y.substr(l.y.size() - bias.size());
  const Shape& y = product.types[0].shape;
  return l.b.find(own) != l.b.npos && l.a.find_first_of(own) == l.a.npos && std::equal(bias.begin(), bias.end(), y.end() - static_cast<std::ptrdiff_t>(bias.size()));
}

/// What `op` makes plus a bias per element of its last axis, or of what `along_columns` says, on either side: the two nodes.
/// What is added to itself has no bias.
inline std::optional<std::pair<NodeId, NodeId>> biased(const Graph& g, ValueId v, std::string_view op) {
  auto sum = maker(g, v, "add");
  if (!sum || g.node(*sum).inputs[0] == g.node(*sum).inputs[1]) return {};
  for (std::size_t side : {0u, 1u}) {
    auto made = maker(g, g.node(*sum).inputs[side], op);
    if (!made) continue;
    const TensorType &y = g.node(*made).types[0], &bias = g.type(g.node(*sum).inputs[1 - side]);
    if (g.node(*sum).types[0] == y && !y.shape.empty() && !y.shape.back().symbolic() && (bias.shape == Shape{y.shape.back()} || along_columns(g, g.node(*made), bias.shape))) return std::pair(*made, *sum);
  }
  return {};
}

/// Of one tap on every pixel: a product of matrices.
inline bool is_product(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const Shape& filter = g.type(n.inputs[1]).shape;
  return filter[0] == Dim(1) && filter[1] == Dim(1) && n.attributes.integer("groups") == 1 && n.attributes.integers("strides") == Integers{1, 1};
}

/// Of few channels on tensor cores: of halves, or f32 that may be rounded.
inline bool is_few_channels(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const TensorType& x = g.type(n.inputs[0]);
  const Shape& filter = g.type(n.inputs[1]).shape;
  return (is_half(x.dtype) || (x.dtype == f32 && g.precision.rounds)) && no_few_channels(n.attributes, x.shape[3].factor, filter[3].factor, filter[0].factor, filter[1].factor, is_half(x.dtype) ? 2 : 1).empty();
}

/// A convolution that a generated kernel of GPUs makes with what follows.
inline bool is_depthwise(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  if (n.op->name != "conv2d") return false;
  const TensorType &x = g.type(n.inputs[0]), &filter = g.type(n.inputs[1]), &y = n.types[0];
  return x.dtype == y.dtype && filter.dtype == y.dtype && no_depthwise(n.attributes, x.shape[3].factor, y.shape[3].factor, filter.shape[0].factor, filter.shape[1].factor).empty();
}

}  // namespace belfry::fusion_rules
