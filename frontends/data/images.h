// Photos: JPEG files, resizing, and folders of one class each.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// Pixels u8 (height, width, 3), red first. UserError naming `name` for what is no JPEG, is cut short, or has more than 2^26 pixels.
HostTensor decode_jpeg(std::span<const std::byte> file, const std::string& name);

/// Bilinear, centres of pixels at half integers, aspect not kept. x: f32 (height, width, channels). With `antialias` a smaller image averages over
/// all pixels that it covers (as Pillow does, and TensorFlow when asked); without it reads two along each axis (tf.image.resize).
HostTensor resize_bilinear(const HostTensor& x, std::int64_t height, std::int64_t width, bool antialias = false);

struct ImageFolderOptions {
  std::int64_t height = 224, width = 224;
  double scale = 1 / 127.5, offset = -1;  ///< each value of 0 to 255 becomes value * scale + offset
  bool antialias = false;
};

struct ImageFolder {
  DataSet data;                      ///< "image" f32 (n, height, width, 3); "label" i32 (n): the number of the class
  std::vector<std::string> classes;  ///< names of the folders, sorted
  std::vector<std::string> files;    ///< relative paths, sorted, in the order of the rows
};

/// Reads `ROOT/CLASS/NAME.jpg` or .jpeg. UserError where there is no class, a class has no photo, or a photo cannot be read.
ImageFolder image_folder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

}  // namespace belfry
