// Scalars for TensorBoard: event files, records with masked checksums, written as training goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/growing_file_internal.h>

namespace belfry {

/// The name of a chart: a value's name without the tower it is of, so that all towers' values share one.
std::string scalar_tag(const std::string& name);

/// One event file: a new one for each start in the same folder.
class ScalarEvents {
 public:
  using Notice = std::function<void(const std::string&)>;
  /// Makes the folder. A start that goes on says so: readers then drop what earlier files have behind step `before`.
  ScalarEvents(const std::filesystem::path& folder, std::int64_t before, Notice notice);
  /// UserError where it cannot be written. One that was removed is followed by another, and the notice told.
  void add(std::int64_t step, const Metrics& scalars);

 private:
  void begin(std::int64_t before);
  void write(const std::string& event);

  std::filesystem::path folder_, path_;
  Notice notice_;
  GrowingFile file_;
};

/// A folder of runs as TensorBoard knows them: train/ with what each step gave, validation/ with what each epoch did, under the same tags.
class TensorBoardLog {
 public:
  /// `within`: a start that goes on in the middle of an epoch, whose validation at step `before` is made anew at its end.
  TensorBoardLog(const std::filesystem::path& folder, std::int64_t before, bool within, const ScalarEvents::Notice& notice)
      : train_(folder / "train", before, notice), validation_(folder / "validation", before - (within ? 1 : 0), notice) {}
  void step(std::int64_t step, const Metrics& scalars) { train_.add(step, scalars); }
  /// Of the metrics what is of validation; `rates` beside the steps.
  void epoch(std::int64_t step, const Metrics& metrics, const Metrics& rates);

 private:
  ScalarEvents train_, validation_;
};

}  // namespace belfry
