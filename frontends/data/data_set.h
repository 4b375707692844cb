// Named columns whose rows lie along axis 0.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <belfry/graph/host_tensor.h>

namespace belfry {

struct DataSet {
  std::map<std::string, HostTensor> columns;

  /// The rows that all columns have; 0 without columns. UserError where a column is a scalar or two disagree.
  std::int64_t rows() const;
  /// A copy of rows [first, first + count) of every column. UserError where they are not all there.
  DataSet slice(std::int64_t first, std::int64_t count) const;
};

/// Rows to train on, and rows held out.
struct Splits {
  DataSet train, test;
};

}  // namespace belfry
