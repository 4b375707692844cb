// CIFAR-10 in its binary form, as named columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/data/distort.h>

namespace belfry {

struct Cifar10Options {
  std::int64_t size = 24;                       ///< of the images, which are the middle of 32 x 32
  std::optional<Distortions> distortions = {};  ///< of the training images, in each epoch anew: windows of `size` in the middle of size + crop, which is at most 32
};

/// "image" f32 (n, size, size, 3); "label" i32 (n). Reads data_batch_*.bin and test_batch*.bin from a folder: records of a label and 32 x 32 bytes of red, green and blue each. Images are cut to
/// their middle and standardised as the TensorFlow tutorial evaluates them: (x - mean) / max(deviation, 1 / sqrt(size * size * 3)) over the image.
/// UserError where there is no training batch, or a file is no whole number of records or has a label above 9. Without test batches `test` is empty.
Splits cifar10(const std::filesystem::path& dir, const Cifar10Options& options = {});
/// As they are stored: "image" u8 (n, 32, 32, 3); "label" i32 (n).
Splits cifar10_bytes(const std::filesystem::path& dir);

}  // namespace belfry
