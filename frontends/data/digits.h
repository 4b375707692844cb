// Handwriting-like digits drawn by the program itself, for when no data are at hand.
#pragma once

#include <cstdint>
#include <filesystem>

#include <belfry/graph/host_tensor.h>

namespace belfry {

struct Digits {
  HostTensor images;  ///< u8 (n, 28, 28), 0 is background
  HostTensor labels;  ///< u8 (n), shuffled, all classes equally often
};

/// Strokes with random style, slant, scale, shift, wobble, thickness, blur and noise. Digit i is a function of seed, stream and i alone.
Digits drawn_digits(std::int64_t count, std::uint64_t seed, std::uint64_t stream = 0);

/// Writes the four files of MNIST into a folder, which is made if need be. Train and test are drawn from different streams of the seed.
/// UserError for counts below 1, where the folder cannot be written, and where it has MNIST itself or other files of its names.
void draw_digits(const std::filesystem::path& dir, std::int64_t train_count, std::int64_t test_count, std::uint64_t seed);

}  // namespace belfry
