// What `belfry train --data DIR` finds in a folder.
#pragma once

#include <filesystem>
#include <span>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// MNIST's four IDX files, CIFAR-10's binary batches, or photos in class folders under train/ and val/ or test/, which are resized to `image` (height,
/// width, 3) and scaled to [-1, 1]. Columns "image" and "label". UserError where the folder holds none of these, or holds no held-out rows.
Splits data_folder(const std::filesystem::path& dir, std::span<const std::int64_t> image = {});

}  // namespace belfry
