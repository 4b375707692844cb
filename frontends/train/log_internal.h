// What training reports, as lines of JSON in a file that can be read while it grows.
#pragma once

#include <chrono>
#include <fstream>
#include <string>

#include <belfry/frontends/train/fit.h>

namespace belfry {

class TrainingLog {
 public:
  /// Nothing is written where `path` is empty. With `go_on` lines are put behind those that are there. UserError where the file cannot be opened.
  TrainingLog(const std::string& path, bool go_on);
  /// {"step", "epoch", "rows", "seconds" since the log was opened, "learning_rate", losses and metrics of the batch}; epochs count from 1.
  void step(const Progress& p, std::int64_t rows);
  /// {"epoch", "steps", "seconds", losses and metrics of the epoch, and of validation}.
  void epoch(const Progress& p);

 private:
  void write(std::string line, const Metrics& metrics);

  std::string path_;
  std::ofstream file_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace belfry
