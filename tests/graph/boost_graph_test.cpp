#include <belfry/graph/boost_graph.h>

#include <boost/concept/assert.hpp>
#include <boost/graph/graph_concepts.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/graph/topological_sort.hpp>

#include <gtest/gtest.h>

#include "nets.h"

namespace belfry::test {
namespace {

BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<Graph>));
BOOST_CONCEPT_ASSERT((boost::BidirectionalGraphConcept<Graph>));

TEST(BoostGraph, sorts_every_net_without_a_copy) {
  for (const Net& n : nets()) {
    const Graph g = training_graph(n);
    std::vector<NodeId> order;
    boost::topological_sort(g, std::back_inserter(order));
    std::vector<int> place(static_cast<std::size_t>(g.size()), -1);
    for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(order.size() - i);
    ASSERT_EQ(order.size(), static_cast<std::size_t>(g.size()));
    for (NodeId id = 0; id < g.size(); ++id)
      for (ValueId v : g.node(id).inputs)
        EXPECT_LT(place[static_cast<std::size_t>(v.node)], place[static_cast<std::size_t>(id)]);
  }
}

TEST(BoostGraph, finds_every_node_to_be_its_own_strong_component) {
  const Graph g = training_graph(net("attention"));
  std::vector<int> component(static_cast<std::size_t>(g.size()));
  EXPECT_EQ(boost::strong_components(g, component.data()), g.size());
}

TEST(BoostGraph, has_one_edge_for_a_reader_that_reads_twice) {
  Builder b("net");
  Value x = b.input("x", f32, {3}), y = x * x;
  const Graph& g = b.graph();
  EXPECT_EQ(out_degree(x.id.node, g), 1u);
  EXPECT_EQ(in_degree(y.id.node, g), 1u);
  EXPECT_EQ(*in_edges(y.id.node, g).first, GraphEdge(x.id.node, y.id.node));
  EXPECT_EQ(num_vertices(g), 2u);
}

TEST(BoostGraph, has_the_same_edges_from_both_ends) {
  const Graph g = training_graph(net("tied"));
  std::vector<GraphEdge> out, in;
  for (NodeId id = 0; id < g.size(); ++id) {
    for (auto [at, end] = out_edges(id, g); at != end; ++at) out.push_back(*at);
    for (auto [at, end] = in_edges(id, g); at != end; ++at) in.push_back(*at);
  }
  std::sort(out.begin(), out.end());
  std::sort(in.begin(), in.end());
  EXPECT_EQ(out, in);
  EXPECT_GT(out.size(), 20u);
}

}  // namespace
}  // namespace belfry::test
