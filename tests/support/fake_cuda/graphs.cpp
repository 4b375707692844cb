// Capture and graphs. A graph is what its streams were given, with the order that streams and events ask for.
#include <algorithm>
#include <thread>
#include <utility>

#include "state_internal.h"

using namespace fake_cuda;

struct Node {
  FakeOp op;
  std::set<std::size_t> after;
  int priority;                      ///< of the stream
};

struct CUgraph_st {
  std::vector<Node> nodes;
  CUstream origin = nullptr;         ///< null: the capture has ended
  CUstreamCaptureMode mode{};
  std::thread::id thread;
  bool lost = false;
  std::uint64_t id = 0;
};

/// One launch: nodes that have run and that are still to run.
struct Running {
  std::vector<Node> nodes;
  std::vector<bool> begun, done;
  std::size_t left = 0;
  std::shared_ptr<Running> before;  ///< the launch before this one
  std::vector<Clock> clocks = {};   ///< of the nodes that have begun
  Clock base = {}, ended = {};
};

struct CUgraphExec_st {
  std::vector<Node> nodes;
  std::shared_ptr<Running> last;
};

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// The graphs that are captured now.
std::set<CUgraph> open_captures() {
  std::set<CUgraph> out;
  for (const CUstream_st& s : state().streams)
    if (s.capture) out.insert(s.capture);
  return out;
}

/// All nodes that come before one of the given, those among them.
std::set<std::size_t> behind(const CUgraph_st& graph, const std::set<std::size_t>& from) {
  std::set<std::size_t> out = from;
  std::vector<std::size_t> open(from.begin(), from.end());
  while (!open.empty()) {
    std::size_t n = open.back();
    open.pop_back();
    for (std::size_t before : graph.nodes[n].after)
      if (out.insert(before).second) open.push_back(before);
  }
  return out;
}

/// Any of the nodes that are free to run, as a step that says when it is done.
FakeOp any_free(const std::shared_ptr<Running>& r, CUstream_st& stream) {
  if (r->clocks.empty()) {
    r->clocks.resize(r->nodes.size());
    r->base = stream.clock;
    if (r->before) join(r->base, r->before->ended);
    r->before = nullptr;
  }
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < r->nodes.size(); ++i) {
    const auto& after = r->nodes[i].after;
    if (!r->begun[i] && std::all_of(after.begin(), after.end(), [&](std::size_t n) { return r->done[n]; })) free.push_back(i);
  }
  const std::size_t chosen = free[state().random() % free.size()];
  r->begun[chosen] = true;
  FakeOp op = r->nodes[chosen].op;
  op.strand = strand_of(stream.strand, op.strand);
  op.clock = &r->clocks[chosen];
  *op.clock = r->base;
  for (std::size_t n : r->nodes[chosen].after) join(*op.clock, r->clocks[n]);
  op.run = [r, chosen, run = op.run] {
    CUresult code = run();
    r->done[chosen] = true;
    --r->left;
    join(r->ended, r->clocks[chosen]);
    return code;
  };
  return op;
}

}  // namespace

namespace fake_cuda {

CUresult capture(CUstream stream, FakeOp op) {
  CUgraph_st& graph = *stream->capture;
  if (graph.lost) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  // A wait for a value, or a graph within a graph.
  if (op.ready || op.choose) return CUDA_ERROR_NOT_SUPPORTED;
  graph.nodes.push_back({std::move(op), stream->tail, stream->priority});
  stream->tail = {graph.nodes.size() - 1};
  return CUDA_SUCCESS;
}

CUresult capture_wait(CUstream stream, CUevent event) {
  auto lose = [](CUgraph graph, CUresult code) {
    if (graph) graph->lost = true;
    return code;
  };
  // The order would reach out of the graph, or into it.
  if (!event->capture) return lose(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (!event->capture->origin) return lose(stream->capture, CUDA_ERROR_INVALID_VALUE);
  if (stream->capture && stream->capture != event->capture) return lose(stream->capture, lose(event->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE));
  stream->capture = event->capture;
  stream->tail.insert(event->nodes.begin(), event->nodes.end());
  return CUDA_SUCCESS;
}

CUresult not_while_captured(CUstream stream) {
  for (CUgraph graph : open_captures()) {
    bool forbidden = stream ? stream->capture == graph
                            : thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED && graph->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                                  (graph->thread == std::this_thread::get_id() || (graph->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (!forbidden) continue;
    graph->lost = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  Call call("cuStreamBeginCapture_v2");
  if (call.error) return call.error;
  if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto* graph = new CUgraph_st;
  graph->origin = stream;
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  graph->id = ++state().clock;
  stream->capture = graph;
  stream->tail.clear();
  return CUDA_SUCCESS;
}

/// Null and an error if a stream was forked and not joined, or the capture was lost on the way.
CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  Call call("cuStreamEndCapture");
  if (call.error) return call.error;
  *out = nullptr;
  CUgraph graph = stream ? stream->capture : nullptr;
  if (!graph) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (graph->mode != CU_STREAM_CAPTURE_MODE_RELAXED && graph->thread != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult code = graph->lost ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  const std::set<std::size_t> joined = behind(*graph, stream->tail);
  for (CUstream_st& s : state().streams) {
    if (s.capture != graph) continue;
    if (!code && !std::includes(joined.begin(), joined.end(), s.tail.begin(), s.tail.end())) code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    s.capture = nullptr;
    s.tail.clear();
  }
  graph->origin = nullptr;
  if (!code) *out = graph;
  return code;  // A graph that failed is kept: events may still point at it.
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  Call call("cuStreamIsCapturing");
  if (call.error) return call.error;
  if (!stream) return CUDA_ERROR_NOT_SUPPORTED;
  *status = !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE : stream->capture->lost ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, const CUgraphEdgeData**, std::size_t*) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Call call("cuThreadExchangeStreamCaptureMode", Needs::start);
  if (call.error) return call.error;
  std::swap(thread_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  Call call("cuGraphInstantiateWithFlags");
  if (call.error) return call.error;
  if (flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!graph || graph->origin) return CUDA_ERROR_INVALID_VALUE;
  // Without the flag all kernels have the priority of the stream that the graph is launched on.
  std::set<int> priorities;
  for (const Node& n : graph->nodes)
    if (n.op.access.kernel) priorities.insert(n.priority);
  if (priorities.size() > 1) ++state().calls[flags ? "priorities kept" : "priorities lost"];
  *out = new CUgraphExec_st{graph->nodes, nullptr};
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  Call call("cuGraphUpload");
  if (call.error) return call.error;
  return exec && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// A step of the stream per node, each of which takes any node that is free. A graph never runs beside itself.
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  Call call("cuGraphLaunch", Needs::context, true);
  if (call.error) return call.error;
  if (!exec || !stream) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
  auto running = std::make_shared<Running>(Running{exec->nodes, std::vector<bool>(exec->nodes.size()), std::vector<bool>(exec->nodes.size()), exec->nodes.size(), exec->last});
  auto before = std::exchange(exec->last, running);
  for (std::size_t i = 0; i < exec->nodes.size(); ++i) {
    FakeOp op;
    op.ready = [before] { return !before || before->left == 0; };
    if (call.later) op.run = [] { return CUDA_SUCCESS; };
    else op.choose = [running](CUstream_st& on) { return any_free(running, on); };
    if (CUresult code = queue(call, stream, std::move(op))) return code;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  Call call("cuGraphExecUpdate_v2");
  if (call.error) return call.error;
  if (!exec || !graph || graph->origin) return CUDA_ERROR_INVALID_VALUE;
  auto same = [](const Node& a, const Node& b) { return a.after == b.after && a.op.calls_out == b.op.calls_out; };
  *info = {};
  if (!std::equal(exec->nodes.begin(), exec->nodes.end(), graph->nodes.begin(), graph->nodes.end(), same)) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  exec->nodes = graph->nodes;
  return CUDA_SUCCESS;
}

/// Their number alone.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Call call("cuGraphGetNodes");
  if (call.error) return call.error;
  if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
  *count = graph->nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Call call("cuGraphExecDestroy");
  if (call.error) return call.error;
  delete exec;
  return CUDA_SUCCESS;
}

/// Kept, since events may still point at it.
CUresult cuGraphDestroy(CUgraph graph) {
  Call call("cuGraphDestroy");
  if (call.error) return call.error;
  graph->nodes.clear();
  return CUDA_SUCCESS;
}

}  // extern "C"
