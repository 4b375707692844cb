// Scalars for TensorBoard: event files, records with masked checksums, written as training goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <belfry/frontends/train/fit.h>

namespace belfry {

/// The name of a chart: a value's name without the tower it is of, so that all towers' values share one.
std::string scalar_tag(const std::string& name);

/// One event file: a new one for each start in the same folder.
class ScalarEvents {
 public:
  /// Makes the folder. A start that goes on says so: readers then drop what earlier files have behind step `before`.
  ScalarEvents(const std::filesystem::path& folder, std::int64_t before);
  /// UserError where it cannot be written.
  void add(std::int64_t step, const Metrics& scalars);

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// A folder of runs as TensorBoard knows them: train/ with what each step gave, validation/ with what each epoch did, under the same tags.
class TensorBoardLog {
 public:
  /// `within`: a start that goes on in the middle of an epoch, whose validation at step `before` is made anew at its end.
  TensorBoardLog(const std::filesystem::path& folder, std::int64_t before, bool within) : train_(folder / "train", before), validation_(folder / "validation", before - (within ? 1 : 0)) {}
  void step(std::int64_t step, const Metrics& scalars) { train_.add(step, scalars); }
  /// Of the metrics what is of validation; `rates` beside the steps.
  void epoch(std::int64_t step, const Metrics& metrics, const Metrics& rates);

 private:
  ScalarEvents train_, validation_;
};

}  // namespace belfry
