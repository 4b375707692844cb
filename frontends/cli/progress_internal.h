// What a person sees while training runs: one line that is written over on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <belfry/frontends/train/fit.h>

namespace belfry {

class ProgressLine {
 public:
  /// `unit`: what a row is, as "img". `one_device`: rows a second of one device, where that is known.
  ProgressLine(std::string unit, std::optional<double> one_device);
  ~ProgressLine();
  void batch(const Progress& p);
  void epoch(const Progress& p);

 private:
  using Clock = std::chrono::steady_clock;
  std::string rate(const Progress& p, bool whole = true) const;  ///< whole: with the words, for which a line that is written over has no room

  std::string unit_;
  std::optional<double> one_device_;
  Clock::time_point shown_;
};

/// Whether standard error is a terminal whose line may be written over: neither NO_COLOR nor TERM=dumb says otherwise.
bool writes_over();
/// A line below all that is said, until the next; empty: none.
void show_line(const std::string& line);

/// Of the usual size so many digits behind the point; so many significant ones where these would say nothing, or too much.
std::string metric_text(const std::string& name, double value, int digits);
std::string metrics_text(const Metrics& metrics);
/// Rows a second of the same step on the first device alone, as measured over a few steps. Nothing where there is one device, or no room for both.
std::optional<double> one_device_rate(Session& session, const DataSet& data, std::int64_t batch, const std::vector<std::string>& fetches);

}  // namespace belfry
