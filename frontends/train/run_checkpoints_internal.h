// The checkpoints that one training writes: which are due, and what a further start of the same run is told by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <belfry/frontends/train/checkpoints.h>
#include <belfry/frontends/train/fit.h>

namespace belfry {

/// Among the notes that `resume` gives the step at which they hold: a training that goes on from elsewhere has none of them.
inline constexpr const char* kStepOfNotes = "step of the notes";

/// The best epoch that was kept. UserError where it is damaged, and with what then.
Checkpoint load_best(const std::filesystem::path& dir);

class RunCheckpoints {
 public:
  /// Makes the folder. UserError where it cannot be written in or listed, or has later checkpoints than the session goes on from.
  RunCheckpoints(Session& session, const DataSet& data, const FitOptions& options);
  /// Whether one is due at this step, the end of an epoch or of the training apart.
  bool due(std::int64_t step) const { return options_.checkpoint_every && step % options_.checkpoint_every == 0; }
  /// Removes what an earlier start kept beyond `keep`: with more to keep, or killed before it removed the oldest.
  void prune() const;
  /// The first step of a run is done: a best epoch that lies there is another run's, and goes.
  void begun();
  /// Of the session as it stands; the older ones go, and a best epoch's too where this run has none. UserError names the last good one.
  void save(const TextMap& notes, bool has_best);
  void save_best();
  /// "the last good checkpoint is FILE", or that there is none yet.
  std::string last_good() const;

 private:
  /// The folder where it was removed since.
  void make_anew() const;
  Session& session_;
  const FitOptions& options_;
  TextMap settings_;
};

}  // namespace belfry
