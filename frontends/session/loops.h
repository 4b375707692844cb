// Training by loops over a versioned store: workers pull and push gradients, servers apply them. No step waits for all workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/frontends/session/session.h>
#include <belfry/frontends/session/versions.h>
#include <belfry/graph/passes/cut_updates.h>

namespace belfry {

/// What the loops have done.
struct LoopCounts {
  std::int64_t updates = 0;
  std::int64_t dropped = 0;              ///< gradients that came too late
  std::vector<std::int64_t> staleness;   ///< [s]: gradients that were applied s updates after the version they were computed from
  double mean_staleness() const;
  int most_staleness() const { return staleness.empty() ? 0 : static_cast<int>(staleness.size()) - 1; }
  /// "1200 updates; staleness 1.83 in the mean, 4 at most (0: 3, 1: 402, …); 7 gradients dropped".
  std::string text() const;
};

struct LoopOptions {
  std::int64_t rows = 1;                       ///< of a mini-batch
  std::vector<std::string> fetches = {};       ///< metrics and values of a worker; what the servers compute, as the learning rate, is theirs
  /// For tests: called by a worker between pull and its step; what it throws is the worker's failure.
  std::function<void(int worker, std::int64_t version)> before = {};
};

/// A gradient that was applied.
struct Applied {
  Results results;             ///< the fetches, of its mini-batch and of the version it was computed from; the servers' of the version before the update
  std::int64_t rows = 0, staleness = 0;
};

/// The loops of a session whose strategy has some. Its variables are the loops' while they run, and the session's again behind.
class TrainingLoops {
 public:
  /// Both plans are made and verified. UserError where they do not fit the devices' memory together, for a session whose
  /// strategy has no loops, for placement rules (each worker is one device's), and for values that cannot be averaged.
  TrainingLoops(Session& session, LoopOptions options);

  /// Makes up to `steps` updates from the source's mini-batches; `applied` is told of each, on the calling thread. All that was
  /// handed out is applied or dropped when it returns. The first error of any loop ends all: it is thrown, the session has what
  /// was applied until then, and what was under way is lost.
  void run(const VersionedStore::Source& source, std::int64_t steps, const std::function<void(const std::vector<Applied>&)>& applied);

  const LoopCounts& counts() const { return counts_; }
  /// Of the first worker: the others differ in its device alone.
  PlacedGraph worker_plan(std::int64_t rows);
  PlacedGraph server_plan();
  /// Workers, rule and bound, and what is not promised.
  std::string promise() const;

 private:
  void work(int worker, VersionedStore& store);
  void serve(VersionedStore& store, std::int64_t dropped_before, const std::function<void(const std::vector<Applied>&)>& applied);
  NamedTensors joined(const std::vector<Pushed>& pushed) const;
  std::shared_ptr<const NamedTensors> snapshot();
  void check_averages() const;
  void check_room();

  Session& session_;
  const Loops loops_;
  const LoopOptions options_;
  CutGraphs cut_;
  std::vector<std::string> fetches_, server_fetches_;  // fetches_: a worker's, what it pushes among them
  std::vector<std::unique_ptr<Session>> workers_;
  std::unique_ptr<Session> server_;
  LoopCounts counts_;
};

}  // namespace belfry
