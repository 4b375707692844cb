// What `belfry train --data DIR` finds in a folder.
#pragma once

#include <filesystem>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// What a graph's inputs ask of the data.
struct DataWanted {
  std::int64_t height = 0, width = 0;  ///< of photos; 0: 224
  std::int64_t length = 0;             ///< of windows of text; 0: no text
  bool antialias = false;              ///< how photos are made smaller: see resize_bilinear
};

/// MNIST's four IDX files, CIFAR-10's binary batches, photos in class folders under train/ and val/ or test/, scaled to [-1, 1], or *.txt. Columns "image"
/// and "label", or "tokens" and "targets". UserError where the folder holds none of these, or no held-out rows.
Splits data_folder(const std::filesystem::path& dir, const DataWanted& wanted = {});

}  // namespace belfry
