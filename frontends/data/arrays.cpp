#include <belfry/frontends/data/arrays.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/data/fits_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/npy.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

void check_rows(const DataSet& data, const std::filesystem::path& path) {
  try {
    if (data.rows() == 0) throw UserError("holds no rows");
    for (const auto& [name, column] : data.columns)
      if (column.elements() == 0) throw UserError(fmt::format("[data] column '{}' is {}: its rows hold nothing; leave it out", name, to_string(column.type())));
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", path.string(), e.what()));
  }
}

HostTensor brought_to(const HostTensor& x, DType dtype, const std::string& name) {
  if (x.dtype() == dtype) return x;
  visit_stored(dtype, [&]<class To>() {
    visit_stored(x.dtype(), [&]<class From>() {
      const std::span<const From> values = x.data<From>();
      const std::size_t row = values.empty() ? 1 : values.size() / static_cast<std::size_t>(x.shape()[0]);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (const auto d = static_cast<double>(values[i]); !can_hold<To>(d)) throw UserError(fmt::format("[data] row {}, column '{}' {}", i / row, name, why_no_value(d, dtype)));
    });
  });
  return converted(x, dtype);
}

/// By its own name or, as x and y, by another; where no inputs are known all may.
bool may_be_fed(const std::string& column, const InputRows& inputs) { return inputs.empty() || inputs.contains(column) || column == "x" || column == "y"; }

Extents without_ones(Extents shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

DataSet read_arrays(const std::filesystem::path& path, const InputRows& inputs) {
  DataSet out;
  refuse_closed(path);
  if (std::filesystem::is_directory(path)) {
    for (const auto& e : std::filesystem::directory_iterator(path))
      if (e.path().extension() == ".npy") {
        const std::string name = e.path().stem().string();
        try {
          out.columns.emplace(name, read_npy(e.path()));
        } catch (const TypeNotRead&) {
          if (may_be_fed(name, inputs)) throw;
        }
      }
  } else {
    out.columns = read_npz(path, [&](const std::string& name) { return may_be_fed(name, inputs); });
  }
  check_rows(out, path);
  return out;
}

Splits read_packed_arrays(const std::filesystem::path& path, const InputRows& inputs) {
  Splits out;
  auto split_of = [](const std::string& name) {
    const std::size_t at = name.rfind('_');
    const std::string split = at == name.npos ? "" : name.substr(at + 1);
    return split == "train" || split == "test" || split == "val" ? split : "";
  };
  auto all = read_npz(path, [&](const std::string& name) {
    const std::string split = split_of(name);
    return may_be_fed(split.empty() ? name : name.substr(0, name.size() - split.size() - 1), inputs);
  });
  const bool named = std::any_of(all.begin(), all.end(), [&](const auto& one) { return !split_of(one.first).empty(); });
  for (auto& [name, tensor] : all) {
    const std::string split = split_of(name);
    if (named && split.empty()) throw UserError(fmt::format("{}: '{}' is neither NAME_train nor NAME_test, as others in it are; name it so, or give a folder with train.npz and test.npz", path.string(), name));
    (!named || split == "train" ? out.train : out.test).columns.emplace(named ? name.substr(0, name.size() - split.size() - 1) : name, std::move(tensor));
  }
  check_rows(out.train, path);
  if (!out.test.columns.empty()) check_rows(out.test, path);
  return out;
}

std::string why_no_value(double x, DType dtype) {
  if (is_float(dtype) || is_half(dtype)) return fmt::format("holds {}, which is too large for {}: bring the column to a smaller unit, or give the graph an input of f64", x, name_of(dtype));
  return fmt::format("holds {}, which is no {}: {}, or give the graph an input of another type", x, name_of(dtype), dtype == boolean ? "write 0 or 1" : !std::isfinite(x) ? "leave the row out" : x == std::floor(x) ? "write a smaller one" : "round it");
}

void fit_columns(DataSet& data, const InputRows& inputs) {
  for (const auto& [from, to] : {std::pair{"x", "image"}, {"y", "label"}})
    if (inputs.contains(to) && !inputs.contains(from) && !data.columns.contains(to))
      if (auto node = data.columns.extract(from)) {
        node.key() = to;
        data.columns.insert(std::move(node));
      }
  for (auto& [name, column] : data.columns) {
    const auto input = inputs.find(name);
    if (input == inputs.end()) continue;
    column = brought_to(column, input->second.dtype, name);
    const Extents row(column.shape().begin() + 1, column.shape().end());
    const bool flat = row.size() == 1 && row[0] == input->second.elements();  // a pixel a column
    if (row == input->second.shape || (!flat && without_ones(row) != without_ones(input->second.shape))) continue;  // where it does not fit, the step says so
    Extents shape = input->second.shape;
    shape.insert(shape.begin(), column.shape()[0]);
    HostTensor same(column.dtype(), shape);
    if (!column.bytes().empty()) std::memcpy(same.raw(), column.raw(), column.bytes().size());
    column = std::move(same);
  }
}

}  // namespace belfry
