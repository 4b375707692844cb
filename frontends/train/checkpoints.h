// A session at rest: all that a training run needs to go on bit for bit, on other devices too.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include <belfry/frontends/session/session.h>
#include <belfry/frontends/state/checkpoint.h>

namespace belfry {

class Checkpoint {
 public:
  /// State, step and seed of the session, data position of the last finished step. `run`: what the training notes of itself.
  static Checkpoint of(Session& session, TextMap run = {});
  static Checkpoint load(const std::string& path);
  void save(const std::string& path) const;
  /// Puts the session where it was.
  void restore(Session& session) const;
  const CheckpointData& data() const { return data_; }
  /// `Session::DataProgress::steps_of_run` as it was; in files that lack it the step.
  std::int64_t steps_of_run() const;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

 private:
  explicit Checkpoint(CheckpointData data) : data_(std::move(data)) {}
  CheckpointData data_;
};

/// Steps of training that the session has taken: what its variable "step" says, where it has one, and those besides that a gate closed while `fit` trained.
std::int64_t steps_of(Session& session);
/// Where the best epoch of an early stop is kept in a folder of checkpoints.
std::filesystem::path best_checkpoint(const std::filesystem::path& dir);

}  // namespace belfry
