// Data sets in arrays and tables of numbers: .npz, .npy and .csv.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/data/distort.h>

namespace belfry {

/// Types of a row of a graph's inputs, by name.
using InputRows = std::map<std::string, LocalType>;

/// A .npz (each member a column) or a folder of .npy (each file one); columns of types that are not read are passed over where no input, x nor y is named so.
/// UserError where rows disagree or there is none.
DataSet read_arrays(const std::filesystem::path& path, const InputRows& inputs = {});
/// A single .npz with NAME_train and NAME_test (or NAME_val) for each column, as Keras packs its sets; where no name ends so all of it is to train on.
Splits read_packed_arrays(const std::filesystem::path& path, const InputRows& inputs = {});

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
/// A column for each name; but where an input of n values is no name of the table, the n names that are no inputs make it, in the table's order. UserError where they are
/// more or fewer.
DataSet columns_of(const Table& table, const InputRows& inputs = {});

/// Brings columns to what a graph's inputs take: another dtype where each value is one of it (floats are rounded, but not to infinity); axes of 1 come and go, and rows that
/// are as many numbers become pictures, their channels last. Where the graph has no input x, the columns x and y are "image" and "label". UserError where
/// a value does not fit.
void fit_columns(DataSet& data, const InputRows& inputs);

}  // namespace belfry
