// A data set cut into global batches, epoch after epoch, in an order that can be taken up anywhere.
#pragma once

#include <optional>
#include <vector>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// Where the data stand: rows [0, position) of the epoch's order are done.
struct DataPosition {
  std::int64_t epoch = 0, position = 0;
  bool operator==(const DataPosition&) const = default;
};

/// The order of `rows` rows in one epoch: every permutation equally likely, a function of the three numbers alone.
std::vector<std::int64_t> shuffled_rows(std::int64_t rows, std::uint64_t seed, std::int64_t epoch);

class Batches {
 public:
  /// `data` outlives the batches and does not change. Without a seed rows come in file order, with one each epoch has its own.
  /// `full`: what is left of an epoch begins a batch that runs on into the next, as in TensorFlow's repeat().batch(n).
  /// UserError for a batch below 1, no rows, or columns that disagree.
  Batches(const DataSet& data, std::int64_t batch, std::optional<std::uint64_t> shuffle_seed = {}, bool full = false);
  Batches(DataSet&&, std::int64_t, std::optional<std::uint64_t> = {}, bool = false) = delete;

  /// The next rows of every column: `batch` of them; unless full, the last batch of an epoch is what is left. Valid until the next call, which writes into the same tensors.
  const std::map<std::string, HostTensor>& next();
  /// The same into tensors of the caller, which are made anew where their types are others.
  void next_into(std::map<std::string, HostTensor>& out);
  std::int64_t batches_per_epoch() const { return (rows_ + batch_ - 1) / batch_; }

  /// After the last batch of epoch e this is {e + 1, 0}, or further on where that batch is full.
  const DataPosition& position() const { return position_; }
  /// The next batch begins here. UserError where there is no such row.
  void seek(const DataPosition& position);

 private:
  struct Pair {
    const HostTensor* column;
    std::size_t row_bytes;
  };
  std::int64_t next_count() const;
  std::int64_t next_row();

  std::int64_t rows_, batch_;
  std::optional<std::uint64_t> seed_;
  bool full_batches_;
  DataPosition position_;
  std::vector<std::int64_t> order_;  ///< of epoch order_epoch_; empty without a seed
  std::int64_t order_epoch_ = -1;
  std::map<std::string, Pair> columns_;
  std::map<std::string, HostTensor> full_, last_;  ///< reused: batches of `batch` rows, and of the rest
};

}  // namespace belfry
