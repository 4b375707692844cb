// Two interpreters on references: the graph as its user wrote it, and the tower graph. Plans are compared with them bit by bit.
#pragma once

#include <map>
#include <string>

#include <belfry/graph/plan/tower_graph.h>

namespace belfry::test {

using Tensors = std::map<std::string, HostTensor>;

struct Result {
  Tensors fetched, state;
};

/// One step of the whole batch.
Result run_whole(const Graph& graph, const Tensors& feeds, const Tensors& state, std::int64_t batch, const std::vector<std::pair<std::string, ValueId>>& fetches,
                 std::int64_t first_row = 0);
/// One step of the towers; `devices` add their complete subtrees first.
Result run_towers(const TowerGraph& graph, const Tensors& feeds, const Tensors& state, int devices = 1);

/// Parts in a row; parts under a new first axis.
HostTensor joined(const std::vector<HostTensor>& parts, int axis);
HostTensor stacked(const std::vector<HostTensor>& parts);

/// The largest |a − b| / (1e-3 + |b|) over the tensors that both have.
double difference(const Tensors& a, const Tensors& b);
bool same_bits(const Tensors& a, const Tensors& b);

}  // namespace belfry::test
