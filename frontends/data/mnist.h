// MNIST, or what is stored like it, as named columns.
#pragma once

#include <filesystem>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// "image" f32 (n, 28, 28, 1), each byte / 255; "label" i32 (n). Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and their t10k- fellows from a folder, plain or with .gz.
/// UserError listing the files that are missing, or naming the one that does not hold 28 x 28 images or labels of 0 to 9.
Splits mnist(const std::filesystem::path& dir);
/// As they are stored: "image" u8 (n, 28, 28, 1); "label" i32 (n).
Splits mnist_bytes(const std::filesystem::path& dir);

}  // namespace belfry
