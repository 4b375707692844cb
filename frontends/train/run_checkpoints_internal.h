// The checkpoints that one training writes: which are due, and what a further start of the same run is told by.
#pragma once

#include <cstdint>

#include <belfry/frontends/train/checkpoints.h>
#include <belfry/frontends/train/fit.h>

namespace belfry {

class RunCheckpoints {
 public:
  /// Makes the folder. UserError where it cannot be written in, or has later checkpoints than the session goes on from.
  RunCheckpoints(Session& session, const DataSet& data, const FitOptions& options);
  /// Whether one is due at this step, the end of an epoch or of the training apart.
  bool due(std::int64_t step) const { return options_.checkpoint_every && step % options_.checkpoint_every == 0; }
  /// Of the session as it stands; the older ones go. UserError names the last good one.
  void save(const TextMap& notes);
  void save_best();

 private:
  Session& session_;
  const FitOptions& options_;
  TextMap settings_;
};

}  // namespace belfry
