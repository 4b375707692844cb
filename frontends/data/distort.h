// Random distortions of pictures, keyed by epoch and row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// What is done to a picture, in this order; 0 leaves it as it is. Each draw U is a hash of seed, epoch, row and kind of distortion alone.
struct Distortions {
  double shear = 0;          ///< degrees, an angle s of U[-shear, shear); with zoom as in Keras' ImageDataGenerator: see distort
  double zoom = 0;           ///< factors zr for rows and zc for columns, each of U[1 - zoom, 1 + zoom); below 1 enlarges
  std::int64_t crop = 0;     ///< so many rows and columns are cut away: the window is anywhere, all places equally likely (tf.image.random_crop)
  bool flip = false;         ///< left and right change places, with probability 1/2
  double brightness = 0;     ///< x + U[-brightness, brightness), one draw for all of it, in units of the pixels' bytes (tf.image.random_brightness)
  double contrast = 0;       ///< (x - mean) * f + mean for each channel, f of U[1 - contrast, 1 + contrast) (tf.image.random_contrast)
  std::uint64_t seed = 0;
  bool operator==(const Distortions&) const = default;
};

/// Those of TensorFlow's CIFAR-10 tutorial: windows of 24 x 24 of 32 x 32, flipped, brightness 63, contrast factors 0.2 to 1.8. It standardises then.
Distortions cifar10_distortions(std::uint64_t seed = 0);

/// "crop=8,flip=1,brightness=63,contrast=0.8" as in the fields; UserError for other names, and numbers that are none or lie outside of what makes sense.
Distortions parse_distortions(const std::string& text, std::uint64_t seed = 0);
/// The same text, and the seed.
std::string to_string(const Distortions& d);

/// What becomes of pixels of 0 to 255.
struct Rescale {
  double scale = 1 / 127.5, offset = -1;  ///< x * scale + offset
  bool standardised = false;              ///< instead of that: see standardise
};

struct PictureSize {
  std::int64_t height = 0, width = 0, channels = 0;
  std::size_t elements() const { return static_cast<std::size_t>(height * width * channels); }
};

/// The draws of one row.
struct Changes {
  double shear = 0, zoom_rows = 1, zoom_columns = 1;
  std::int64_t top = 0, left = 0;  ///< the window's corner
  bool flipped = false;
  double brightness = 0, contrast = 1;
};
Changes changes_of(const Distortions& d, const RowKey& key);

/// `from` into the window `out`. Shear s and zoom are one affine map about the centre: the pixel at (r, c) from there is read at
/// (zoom_rows * r - sin(s) * zoom_columns * c, cos(s) * zoom_columns * c), bilinear, the edge going on outside, as Keras' apply_affine_transform does
/// with fill_mode 'nearest'. UserError where the window is not within.
void change(std::span<const float> from, const PictureSize& size, const Changes& changes, const PictureSize& window, std::span<float> out);

/// (x - mean) / max(deviation, 1 / sqrt(n)) over all n values (tf.image.per_image_standardization).
void standardise(std::span<float> picture);
void rescale(std::span<float> picture, const Rescale& how);
/// In a line.
std::string to_string(const Rescale& how);

/// The rows of `bytes`, u8 (n, height + crop, width + crop, channels), as f32 (height, width, channels): distorted, then rescaled.
MadeColumn distorted_column(const std::shared_ptr<const HostTensor>& bytes, const Distortions& d, const Rescale& how);
/// The middle of each picture of u8 (n, height, width, channels), `rows` by `columns`; where that is odd one pixel nearer to the corner.
HostTensor middles(const HostTensor& bytes, std::int64_t rows, std::int64_t columns);

}  // namespace belfry
