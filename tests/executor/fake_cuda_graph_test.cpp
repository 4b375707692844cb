// Capture on the fake driver: a graph holds the order that streams and events ask for, and what a capture may not do is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "fake_gpus.h"
#include "host_note.h"

namespace belfry::test {
namespace {

class FakeGraphs : public FakeGpus {
 protected:
  void begin(CUstream s) { ASSERT_EQ(d.cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS); }
  void wait(CUstream later, CUstream earlier) {
    CUevent e = event();
    EXPECT_EQ(d.cuEventRecord(e, earlier), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(later, e, 0), CUDA_SUCCESS);
  }
  void write(CUstream s, int number) {
    notes[number] = {&order, number};
    EXPECT_EQ(d.cuLaunchHostFunc(s, Note::write, &notes[number]), CUDA_SUCCESS);
  }
  /// 0 forks into 1 and 2, 3 joins them.
  CUgraph diamond(CUstream a, CUstream b, bool joins = true) {
    begin(a);
    write(a, 0);
    wait(b, a);
    write(a, 1);
    write(b, 2);
    if (joins) wait(a, b);
    write(a, 3);
    CUgraph graph = nullptr;
    EXPECT_EQ(d.cuStreamEndCapture(a, &graph), joins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    return graph;
  }
  CUgraphExec exec(CUgraph graph) {
    CUgraphExec out = nullptr;
    EXPECT_EQ(d.cuGraphInstantiate(&out, graph, 0), CUDA_SUCCESS);
    return out;
  }

  std::vector<int> order;
  Note notes[8] = {};
};

TEST_F(FakeGraphs, keep_the_order_of_streams_and_events) {
  std::set<std::vector<int>> orders;
  for (int seed = 0; seed < 40; ++seed) {
    start(seed);
    CUstream a = stream(), b = stream();
    CUgraph graph = diamond(a, b);
    EXPECT_TRUE(order.empty()) << "captured work has run";
    std::size_t nodes = 0;
    EXPECT_EQ(d.cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 4u);
    CUgraphExec e = exec(graph);
    // Twice, on two streams: it never runs beside itself.
    EXPECT_EQ(d.cuGraphLaunch(e, a), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(e, b), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(a), CUDA_SUCCESS);
    ASSERT_EQ(order.size(), 8u);
    for (std::size_t from : {0u, 4u}) {
      EXPECT_EQ(order[from], 0);
      EXPECT_EQ(order[from + 3], 3);
      orders.insert({order.begin() + static_cast<std::ptrdiff_t>(from), order.begin() + static_cast<std::ptrdiff_t>(from) + 4});
    }
    order.clear();
  }
  EXPECT_EQ(orders, (std::set<std::vector<int>>{{0, 1, 2, 3}, {0, 2, 1, 3}}));
}

TEST_F(FakeGraphs, a_side_stream_that_is_not_joined_is_refused) {
  start();
  EXPECT_EQ(diamond(stream(), stream(), false), nullptr);
}

TEST_F(FakeGraphs, a_wait_that_leaves_the_graph_is_refused) {
  start();
  CUstream a = stream(), b = stream();
  CUevent outside = event();
  EXPECT_EQ(d.cuEventRecord(outside, b), CUDA_SUCCESS);
  begin(a);
  EXPECT_EQ(d.cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CUgraph graph = nullptr;
  EXPECT_EQ(d.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/// Of other streams too, and of events that lie outside.
TEST_F(FakeGraphs, calls_that_wait_look_or_allocate_lose_the_capture) {
  start();
  CUstream s = stream(), other = stream();
  CUevent outside = event();
  ASSERT_EQ(d.cuEventRecord(outside, other), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  CUlibrary library = nullptr;
  const std::vector<std::function<CUresult()>> calls = {[&] { return d.cuMemAlloc(&p, 4); },          [&] { return d.cuStreamSynchronize(s); },      [&] { return d.cuStreamSynchronize(other); },
                                                        [&] { return d.cuStreamQuery(other); },       [&] { return d.cuEventQuery(outside); },       [&] { return d.cuEventSynchronize(outside); },
                                                        [&] { return d.cuLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0); }};
  for (const auto& call : calls) {
    begin(s);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUstreamCaptureStatus status{};
    EXPECT_EQ(d.cuStreamIsCapturing(s, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_EQ(d.cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(FakeGraphs, an_update_keeps_the_shape) {
  start();
  CUstream a = stream(), b = stream();
  CUgraphExec e = exec(diamond(a, b));
  begin(a);
  write(a, 4);
  CUgraph other = nullptr;
  EXPECT_EQ(d.cuStreamEndCapture(a, &other), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(d.cuGraphExecUpdate(e, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(d.cuGraphExecUpdate(e, diamond(a, b), &info), CUDA_SUCCESS);
}

}  // namespace
}  // namespace belfry::test
