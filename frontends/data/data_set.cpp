#include <belfry/frontends/data/data_set.h>

#include <fmt/format.h>

namespace belfry {

std::int64_t DataSet::rows() const {
  const std::string* first = nullptr;
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : columns) {
    if (tensor.shape().empty()) throw UserError(fmt::format("[data] column '{}' is a scalar: it has no rows", name));
    if (first && tensor.shape()[0] != rows) throw UserError(fmt::format("[data] column '{}' has {} rows, but '{}' has {}", name, tensor.shape()[0], *first, rows));
    first = &name;
    rows = tensor.shape()[0];
  }
  return rows;
}

DataSet DataSet::slice(std::int64_t first, std::int64_t count) const {
  const std::int64_t all = rows();
  if (first < 0 || count < 0 || first > all - count) throw UserError(fmt::format("[data] slice of {} rows from {}: there are {}", count, first, all));
  DataSet out;
  for (const auto& [name, tensor] : columns) {
    Extents shape = tensor.shape();
    shape[0] = count;
    HostTensor part(tensor.dtype(), shape);
    std::size_t row = all == 0 ? 0 : tensor.bytes().size() / static_cast<std::size_t>(all);
    if (!part.bytes().empty()) std::memcpy(part.raw(), tensor.raw() + row * static_cast<std::size_t>(first), part.bytes().size());
    out.columns.emplace(name, std::move(part));
  }
  return out;
}

}  // namespace belfry
