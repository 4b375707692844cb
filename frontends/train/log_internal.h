// What training reports: lines of JSON in a file that can be read while it grows, and charts for TensorBoard.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/growing_file_internal.h>
#include <belfry/frontends/train/tensorboard_internal.h>
#include <belfry/frontends/train/usage_internal.h>

namespace belfry {

class TrainingLog {
 public:
  /// Nothing is written where the options name no file. Of what is there the lines up to step `before` and of the first `over` epochs stay: what was
  /// done behind the checkpoint that the training goes on from is done anew; the notice is told where steps before it are not there. `device_shares`: the share of each device in a step's rows. UserError where a file
  /// cannot be opened, or is no log.
  TrainingLog(const FitOptions& options, std::int64_t before, std::int64_t over, std::map<std::string, double> device_shares);
  /// Whether another training's log lies there still: it goes when the first line is written.
  bool replaces() const { return replaces_; }
  /// {"step", "epoch", "rows", "seconds" of training, those of earlier starts with them, "step_seconds" since the step before, "learning_rate",
  /// losses and metrics of the batch}; epochs count from 1. Once a second "cpu", in cores, and "memory_bytes" of this process.
  void step(const Progress& p, std::int64_t rows);
  /// {"epoch", "steps", "seconds", "epoch_seconds" and "input_seconds" of it that steps waited for batches, "rows_per_second", also as the
  /// part that each device had, "cpu", "memory_bytes", losses and metrics of the epoch, and of validation}.
  void epoch(const Progress& p);

 private:
  double seconds() const;
  void open();
  /// Where somebody removed the file since, it is begun anew, and the notice told.
  void write(std::string line, const Metrics& machine, const Metrics& metrics);

  std::string path_;
  std::function<void(const std::string&)> notice_;
  GrowingFile file_;
  bool replaces_ = false;
  std::unique_ptr<TensorBoardLog> charts_;
  std::map<std::string, double> device_shares_;
  double earlier_ = 0;     ///< seconds of the starts before this one
  double last_step_ = 0;   ///< seconds at which the step before ended
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Usage sampled_, epoch_began_;
};

}  // namespace belfry
