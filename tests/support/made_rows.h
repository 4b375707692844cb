// Columns of data sets whose rows are made one by one.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <belfry/frontends/data/data_set.h>

namespace belfry::test {

/// The rows of a column are made from now on, as they are; `look` sees each one's number first, and may throw.
inline void make_rows(DataSet& data, std::string column, const std::function<void(std::int64_t)>& look) {  // by value: it may be the column's own
  const auto rows = std::make_shared<const HostTensor>(std::move(data.columns.extract(column).mapped()));
  const LocalType row{rows->dtype(), {rows->shape().begin() + 1, rows->shape().end()}};
  data.made[column] = {row, "as stored", [=](const RowKey& key, std::span<std::byte> out) {
                         look(key.row);
                         std::memcpy(out.data(), rows->raw() + out.size() * static_cast<std::size_t>(key.row), out.size());
                       }};
}

}  // namespace belfry::test
