// Named columns whose rows lie along axis 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <belfry/graph/host_tensor.h>

namespace belfry {

/// A row of the whole set in one epoch: what random distortions are keyed by, so that they are the same on any towers, threads and shards.
struct RowKey {
  std::int64_t epoch = 0, row = 0;
};

/// A column that is made anew for each batch, row by row.
struct MadeColumn {
  LocalType row;    ///< of one row
  std::string how;  ///< in a line: it is part of what a training's checkpoints compare
  /// Writes the row of this key into `out`. A function of the key alone, which several threads may call.
  std::function<void(const RowKey& key, std::span<std::byte> out)> make;
  /// A hash of what the rows are made of, which checkpoints compare too: who asks waits until all of that is read. Null: none is known.
  std::function<std::uint64_t()> source = {};
};

/// The same, computed when it is first asked for and kept from then on, in copies too.
std::function<std::uint64_t()> computed_once(std::function<std::uint64_t()> hash);

struct DataSet {
  std::map<std::string, HostTensor> columns;
  std::map<std::string, MadeColumn> made = {};
  std::int64_t first_row = 0, row_step = 1;  ///< row k is row first_row + k * row_step of the whole set

  /// The rows that all of `columns` have; 0 without one. UserError where one is a scalar, two disagree, or a name is made too.
  std::int64_t rows() const;
  /// By name, with their rows.
  std::map<std::string, LocalType> types() const;
  /// A copy of rows [first, first + count) of every column; what is made stays so. UserError where they are not all there.
  DataSet slice(std::int64_t first, std::int64_t count) const;
  /// Rows i, i + n, i + 2n, ... of it: the part of machine i of n. UserError unless 0 <= i < n, and where no row is left.
  DataSet shard(std::int64_t i, std::int64_t n) const;

 private:
  DataSet rows_from(std::int64_t first, std::int64_t step, std::int64_t count) const;
};

/// Rows to train on, and rows held out.
struct Splits {
  DataSet train, test;
  std::vector<std::string> classes = {};   ///< what the numbers of "label" stand for; empty: nobody says
  std::vector<std::string> features = {};  ///< the columns of a table that go together into one input, in its order
};

}  // namespace belfry
