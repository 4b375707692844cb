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

/// What becomes of the rows at the end of an epoch that make no whole batch.
enum class LastBatch {
  shorter,  ///< a batch of those that are left
  runs_on,  ///< they begin a batch that runs on into the next epoch, as in TensorFlow's repeat().batch(n)
  dropped,  ///< none: with a seed others are left over in each epoch
};

class Batches {
 public:
  /// `data` outlives the batches and does not change. Without a seed rows come in file order, with one each epoch has its own.
  /// UserError for a batch below 1, no rows, no whole batch where what is left is dropped, or columns that disagree.
  Batches(const DataSet& data, std::int64_t batch, std::optional<std::uint64_t> shuffle_seed = {}, LastBatch last = LastBatch::shorter);
  Batches(DataSet&&, std::int64_t, std::optional<std::uint64_t> = {}, LastBatch = LastBatch::shorter) = delete;

  /// The next rows of every column, stored and made. Valid until the next call, which writes into the same tensors.
  const std::map<std::string, HostTensor>& next();
  /// The same into tensors of the caller, which are made anew where their types are others.
  void next_into(std::map<std::string, HostTensor>& out);
  std::int64_t batches_per_epoch() const { return left_from(0); }
  /// Batches that begin at this row of an epoch or behind it, in that epoch.
  std::int64_t left_from(std::int64_t position) const { return (rows_ - position + (last_batch_ == LastBatch::dropped ? 0 : batch_ - 1)) / batch_; }

  /// After the last batch of epoch e this is {e + 1, 0}, or further on where that batch runs on.
  const DataPosition& position() const { return position_; }
  /// The next batch begins here. UserError where there is no such row.
  void seek(const DataPosition& position);

 private:
  struct Column {
    LocalType row;
    std::size_t row_bytes = 0;
    const std::byte* stored = nullptr;  ///< null: it is made
    const MadeColumn* made = nullptr;
  };
  std::int64_t next_count() const;
  RowKey next_row();
  void drop_rest();

  std::int64_t rows_, batch_;
  std::optional<std::uint64_t> seed_;
  LastBatch last_batch_;
  DataPosition position_;
  std::vector<std::int64_t> order_;  ///< of epoch order_epoch_; empty without a seed
  std::int64_t order_epoch_ = -1;
  std::int64_t first_row_, row_step_;
  std::map<std::string, Column> columns_;
  std::map<std::string, HostTensor> full_, last_;  ///< reused: batches of `batch` rows, and of the rest
};

}  // namespace belfry
