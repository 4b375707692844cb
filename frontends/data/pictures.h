// Pictures from files and from bytes, as rows of a net's input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <belfry/frontends/data/distort.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// What becomes of a picture before a net reads it.
struct Pixels {
  Rescale rescale = {};
  bool antialias = false;    ///< how it is made smaller: see resize_bilinear
  std::int64_t resized = 0;  ///< rows and columns that it is brought to, of which the input has the middle; 0: those of the input
};

/// Whether the name ends as that of a JPEG or PNG file.
bool is_picture(const std::filesystem::path& file);
/// Files in class folders (of train/ and what is beside it, where that is there) that are no pictures which are read; hidden ones apart.
std::vector<std::filesystem::path> files_passed_over(const std::filesystem::path& dir);
/// These files, and of a folder all pictures in it and below, sorted. UserError for a folder that has none or cannot be listed.
std::vector<std::filesystem::path> picture_files(const std::vector<std::filesystem::path>& paths);
/// f32 (height, width, channels), 0 to 255; grey where that is one channel. UserError with the file where it cannot be read.
HostTensor read_photo(const std::filesystem::path& file, const PictureSize& size, bool antialias = false);

/// f32 (files, height, width, channels), as a training with these pixels would have them. UserError with the file that cannot be read.
HostTensor read_pictures(std::span<const std::filesystem::path> files, const PictureSize& size, const Pixels& pixels);
/// The same of u8 (n, height, width, channels) or, of one channel, (n, height, width). UserError where they have neither the input's size nor the one that they are brought to.
HostTensor pictures_of(const HostTensor& bytes, const PictureSize& size, const Pixels& pixels);

}  // namespace belfry
