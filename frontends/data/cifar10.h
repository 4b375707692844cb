// CIFAR-10 in its binary form, as named columns.
#pragma once

#include <filesystem>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// "image" f32 (n, 24, 24, 3); "label" i32 (n). Reads data_batch_*.bin and test_batch*.bin from a folder: records of a label and 32 x 32 bytes of red, green and blue each. Images are cut to the
/// 24 x 24 in their middle and standardised as the TensorFlow tutorial evaluates them: (x - mean) / max(deviation, 1 / sqrt(24 * 24 * 3)) over the image.
/// UserError where there is no training batch, or a file is no whole number of records or has a label above 9. Without test batches `test` is empty.
Splits cifar10(const std::filesystem::path& dir);

}  // namespace belfry
