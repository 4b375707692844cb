// Means over the batches of an epoch or of a data set, and which scalars of a graph have them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/session/fetch_names.h>
#include <belfry/frontends/session/results.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// Means batch by batch, over rows or by weights that were fetched too.
class RunningMeans {
 public:
  void add(const Results& results, const std::vector<std::string>& names, std::int64_t rows);
  Metrics means() const;
  std::int64_t rows() const { return rows_; }
  /// The sums as text, exactly, among the notes of a checkpoint; `take` goes on from them.
  void note(TextMap& notes) const;
  void take(const TextMap& notes);

 private:
  struct Sum {
    double sum = 0, weight = 0;
  };
  std::map<std::string, Sum> sums_;
  std::int64_t rows_ = 0;
};

/// The element of a scalar of any dtype.
double as_double(const HostTensor& scalar);
/// Scalars that training reports: losses, then metrics. UserError for a metric that is none, or hides a loss.
std::vector<std::string> reported(const Graph& g);
/// These, and what weighs them.
std::vector<std::string> with_weights(const Graph& g, std::vector<std::string> names);
/// UserError for an input without a column.
void check_columns(const Graph& g, const DataSet& data);

}  // namespace belfry
