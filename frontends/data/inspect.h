// What lies in a data set: rows, types, classes, and how its values are spread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_folder.h>

namespace belfry {

/// A column as it is stored.
struct ColumnFacts {
  LocalType type = {};                    ///< of photos of several sizes: the largest height and width
  std::int64_t least_height = 0, least_width = 0;  ///< of photos
  std::vector<double> mean = {}, deviation = {};  ///< of images for each channel, of bytes / 255; of other floats over all of them
  std::map<std::int64_t, std::int64_t> classes = {};  ///< rows with each value, where it is a column of at most 1000 different integers
  std::vector<std::int64_t> first = {};   ///< a few of them
};

struct SplitFacts {
  std::string name;
  std::int64_t rows = 0;
  std::map<std::string, ColumnFacts> columns = {};
};

struct DataFacts {
  DataKind kind = DataKind::mnist;
  std::vector<std::string> classes = {};  ///< names of the folders of photos, words of a table's labels
  std::vector<SplitFacts> splits = {};
};

/// Reads all of it, each photo too, without scaling anything. UserError as data_folder, and for a file that is damaged.
DataFacts inspect_data(const std::filesystem::path& path);

}  // namespace belfry
