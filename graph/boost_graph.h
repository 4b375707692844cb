// Makes Graph a model of Boost.Graph's VertexListGraph and BidirectionalGraph, so that its algorithms run without a copy.
// Vertices are node ids. An edge goes from a node to a reader; a reader that reads a node several times has one edge from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>
#include <boost/iterator/counting_iterator.hpp>
#include <boost/property_map/property_map.hpp>

#include <belfry/graph/graph.h>

namespace belfry {

using GraphEdge = std::pair<NodeId, NodeId>;  ///< maker, reader

/// What the standard library asks an iterator about.
struct EdgeIterator {
  using iterator_category = std::forward_iterator_tag;
  using value_type = GraphEdge;
  using difference_type = std::ptrdiff_t;
  using pointer = const GraphEdge*;
  using reference = GraphEdge;
  bool operator==(const EdgeIterator&) const = default;
};

/// Edges that leave a node: its readers in order.
class OutEdgeIterator : public EdgeIterator {
 public:
  OutEdgeIterator() = default;
  OutEdgeIterator(NodeId from, const NodeId* at) : from_(from), at_(at) {}
  GraphEdge operator*() const { return {from_, *at_}; }
  OutEdgeIterator& operator++() { return ++at_, *this; }
  OutEdgeIterator operator++(int) { return {from_, at_++}; }
  bool operator==(const OutEdgeIterator&) const = default;

 private:
  NodeId from_ = -1;
  const NodeId* at_ = nullptr;
};

/// Edges that enter a node: the makers of its inputs in the order of their first reading.
class InEdgeIterator : public EdgeIterator {
 public:
  InEdgeIterator() = default;
  InEdgeIterator(const std::vector<ValueId>& inputs, NodeId to, std::size_t at) : inputs_(&inputs), to_(to), at_(at) { skip(); }
  GraphEdge operator*() const { return {(*inputs_)[at_].node, to_}; }
  InEdgeIterator& operator++() { return ++at_, skip(), *this; }
  InEdgeIterator operator++(int) { auto before = *this; return ++*this, before; }
  bool operator==(const InEdgeIterator&) const = default;

 private:
  void skip() {
    auto read_before = [&] { return std::any_of(inputs_->begin(), inputs_->begin() + static_cast<std::ptrdiff_t>(at_), [&](ValueId v) { return v.node == (*inputs_)[at_].node; }); };
    while (at_ < inputs_->size() && (!(*inputs_)[at_].valid() || read_before())) ++at_;
  }
  const std::vector<ValueId>* inputs_ = nullptr;
  NodeId to_ = -1;
  std::size_t at_ = 0;
};

}  // namespace belfry

namespace boost {

template <>
struct graph_traits<belfry::Graph> {
  using vertex_descriptor = belfry::NodeId;
  using edge_descriptor = belfry::GraphEdge;
  using directed_category = bidirectional_tag;
  using edge_parallel_category = disallow_parallel_edge_tag;
  struct traversal_category : bidirectional_graph_tag, vertex_list_graph_tag {};
  using vertex_iterator = counting_iterator<belfry::NodeId>;
  using out_edge_iterator = belfry::OutEdgeIterator;
  using in_edge_iterator = belfry::InEdgeIterator;
  using vertices_size_type = std::size_t;
  using edges_size_type = std::size_t;
  using degree_size_type = std::size_t;
  static vertex_descriptor null_vertex() { return -1; }
};
template <>
struct property_map<belfry::Graph, vertex_index_t> {
  using type = typed_identity_property_map<belfry::NodeId>;
  using const_type = type;
};

}  // namespace boost

namespace belfry {

// Found by argument-dependent lookup, as Boost.Graph wants them.
inline auto vertices(const Graph& g) { return std::pair(boost::counting_iterator<NodeId>(0), boost::counting_iterator<NodeId>(g.size())); }
inline std::size_t num_vertices(const Graph& g) { return static_cast<std::size_t>(g.size()); }
inline NodeId source(const GraphEdge& e, const Graph&) { return e.first; }
inline NodeId target(const GraphEdge& e, const Graph&) { return e.second; }
inline std::pair<OutEdgeIterator, OutEdgeIterator> out_edges(NodeId v, const Graph& g) {
  const auto& r = g.readers(v);
  return {{v, r.data()}, {v, r.data() + r.size()}};
}
inline std::size_t out_degree(NodeId v, const Graph& g) { return g.readers(v).size(); }
inline std::pair<InEdgeIterator, InEdgeIterator> in_edges(NodeId v, const Graph& g) {
  const auto& inputs = g.node(v).inputs;
  return {{inputs, v, 0}, {inputs, v, inputs.size()}};
}
inline std::size_t in_degree(NodeId v, const Graph& g) {
  auto [first, last] = in_edges(v, g);
  return static_cast<std::size_t>(std::distance(first, last));
}
inline std::size_t degree(NodeId v, const Graph& g) { return in_degree(v, g) + out_degree(v, g); }
inline boost::typed_identity_property_map<NodeId> get(boost::vertex_index_t, const Graph&) { return {}; }
inline NodeId get(boost::vertex_index_t, const Graph&, NodeId v) { return v; }

}  // namespace belfry
