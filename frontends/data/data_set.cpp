#include <belfry/frontends/data/data_set.h>

#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace belfry {

std::function<std::uint64_t()> computed_once(std::function<std::uint64_t()> hash) {
  struct Kept {
    std::once_flag once;
    std::uint64_t value = 0;
  };
  return [hash = std::move(hash), kept = std::make_shared<Kept>()] {
    std::call_once(kept->once, [&] { kept->value = hash(); });
    return kept->value;
  };
}

std::int64_t DataSet::rows() const {
  const std::string* first = nullptr;
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : columns) {
    if (tensor.shape().empty()) throw UserError(fmt::format("[data] column '{}' is a scalar: it has no rows", name));
    if (first && tensor.shape()[0] != rows) throw UserError(fmt::format("[data] column '{}' has {} rows, but '{}' has {}", name, tensor.shape()[0], *first, rows));
    if (made.contains(name)) throw UserError(fmt::format("[data] column '{}' is stored and made", name));
    first = &name;
    rows = tensor.shape()[0];
  }
  return rows;
}

std::map<std::string, LocalType> DataSet::types() const {
  std::map<std::string, LocalType> out;
  for (const auto& [name, tensor] : columns) out[name] = tensor.type();
  for (const auto& [name, column] : made) {
    LocalType type = column.row;
    type.shape.insert(type.shape.begin(), rows());
    out[name] = type;
  }
  return out;
}

DataSet DataSet::rows_from(std::int64_t first, std::int64_t step, std::int64_t count) const {
  const std::int64_t all = rows();
  DataSet out{{}, made, first_row + first * row_step, row_step * step};
  for (const auto& [name, tensor] : columns) {
    Extents shape = tensor.shape();
    shape[0] = count;
    HostTensor part(tensor.dtype(), shape);
    const std::size_t row = all == 0 ? 0 : tensor.bytes().size() / static_cast<std::size_t>(all);
    if (row > 0 && count > 0 && step == 1) std::memcpy(part.raw(), tensor.raw() + row * static_cast<std::size_t>(first), part.bytes().size());
    for (std::int64_t k = 0; row > 0 && step > 1 && k < count; ++k) std::memcpy(part.raw() + row * static_cast<std::size_t>(k), tensor.raw() + row * static_cast<std::size_t>(first + k * step), row);
    out.columns.emplace(name, std::move(part));
  }
  return out;
}

DataSet DataSet::slice(std::int64_t first, std::int64_t count) const {
  const std::int64_t all = rows();
  if (first < 0 || count < 0 || first > all - count) throw UserError(fmt::format("[data] slice of {} rows from {}: there are {}", count, first, all));
  return rows_from(first, 1, count);
}

DataSet DataSet::shard(std::int64_t i, std::int64_t n) const {
  if (i < 0 || i >= n) throw UserError(fmt::format("[data] shard {} of {}: shards are counted from 0", i, n));
  const std::int64_t all = rows();
  if (i >= all) throw UserError(fmt::format("[data] shard {} of {} has none of the {} rows", i, n, all));
  return rows_from(i, n, (all - i - 1) / n + 1);
}

}  // namespace belfry
