// Pictures (n, h, w, c) made of other ops: blocks of pixels as channels, brightness, contrast, standardisation.
#pragma once

#include <belfry/ops/emit.h>

namespace belfry {

/// (n, h, w, c) to (n, h/block, w/block, block²·c): channel (i·block + j)·c + k is channel k of pixel (i, j) of the block, as in TensorFlow.
Value space_to_depth(Value x, std::int64_t block, SourceLine at = SourceLine::here());
/// Back again: (n, h, w, block²·c) to (n, h·block, w·block, c).
Value depth_to_space(Value x, std::int64_t block, SourceLine at = SourceLine::here());

Value adjust_brightness(Value x, double delta, SourceLine at = SourceLine::here());
/// (x − mean)·factor + mean, with the mean over the pixels of each picture and channel.
Value adjust_contrast(Value x, double factor, SourceLine at = SourceLine::here());
/// (x − mean) / max(deviation, 1/√n) over the n elements of each picture.
Value per_image_standardization(Value x, SourceLine at = SourceLine::here());

}  // namespace belfry
