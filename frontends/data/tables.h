// Tables of numbers and classes: .csv.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <belfry/frontends/data/arrays.h>

namespace belfry {

struct Table {
  std::filesystem::path path;
  std::vector<std::string> names = {};
  HostTensor values = {};                 ///< f64 (rows, names)
  std::vector<std::int64_t> lines = {};   ///< of the file, for each row
  std::vector<std::string> classes = {};  ///< that the numbers of 'label' stand for, where these are words in the file
  std::string wrong_labels = {};          ///< why 'label' cannot be read; columns_of says so where it is wanted
};
/// A .csv: a line of names, then lines of as many numbers, with commas between them and quotes as RFC 4180 has them, closed in the line; the column 'label' may have words, which
/// are `classes` or, where these are not given, sorted. The text is UTF-8, its lines may end by a carriage return alone. Labels that are all among `classes` are words, whatever
/// they look like; otherwise all are words, or all numbers. UserError with the line for anything else.
Table read_table(const std::filesystem::path& path, const std::vector<std::string>& classes = {});
/// The columns that no input is named after, but for classes: what goes together into an input of as many values, in this order.
std::vector<std::string> features_of(const Table& table, const InputRows& inputs);
/// Brings those into the order that a net has learnt from, wherever they stand. UserError where one is lacking or too much.
void order_features(Table& table, const InputRows& inputs, const std::vector<std::string>& features);
/// A column for each name; but where an input of n values is no name of the table, the n names that are no inputs make it, in the table's order. UserError where they are
/// more or fewer.
DataSet columns_of(const Table& table, const InputRows& inputs = {});

}  // namespace belfry
