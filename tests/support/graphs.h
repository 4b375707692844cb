// Comparing graphs by structure: names, lines and the order of independent nodes do not matter.
#pragma once

#include <gtest/gtest.h>

#include <belfry/graph/graph.h>

namespace belfry::test {

/// Empty if what is asked of both graphs (outputs, metrics, losses, updates) is computed by the same ops with the same
/// attributes and devices from the same inputs, and both have equally many nodes; else where they part.
std::string graph_difference(const Graph& a, const Graph& b);

inline testing::AssertionResult same_graph(const char*, const char*, const Graph& a, const Graph& b) {
  std::string difference = graph_difference(a, b);
  return difference.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << difference;
}

}  // namespace belfry::test

#define EXPECT_SAME_GRAPH(a, b) EXPECT_PRED_FORMAT2(belfry::test::same_graph, a, b)
