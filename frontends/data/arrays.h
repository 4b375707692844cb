// Data sets in arrays: .npz and .npy.
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

/// Brings columns to what a graph's inputs take: another dtype where each value is one of it (floats are rounded, but not to infinity); axes of 1 come and go, and rows that
/// are as many numbers become pictures, their channels last. Where the graph has no input x, the columns x and y are "image" and "label". UserError where
/// a value does not fit.
void fit_columns(DataSet& data, const InputRows& inputs);

}  // namespace belfry
