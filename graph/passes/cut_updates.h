// A training graph cut where gradients go to whoever applies them: one graph computes, the other updates.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/graph.h>

namespace belfry {

/// `worker` is the graph without its updates; `server` has the updates, with inputs in place of what only feeds can tell:
/// gradients, and forward values such as a batch's statistics. What the state alone decides (the step, schedules of it, the
/// optimiser, clipping, gates) is computed by the server. Each value that is pushed is a metric of the worker's graph and an
/// input of the server's, under one name.
struct CutGraphs {
  Graph worker, server;
  std::vector<std::string> pushed;
};

/// Of a graph after the training passes. UserError where it has no updates.
CutGraphs cut_updates(const Graph& graph);

}  // namespace belfry
