// Photos: JPEG and PNG files as pixels, and resizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <belfry/graph/host_tensor.h>

namespace belfry {

/// Pixels u8 (height, width, 3), red first; those printed with four inks (CMYK) as Pillow's convert("RGB") gives them. UserError naming `name` for what is no
/// JPEG, is cut short or damaged (more bytes than the picture has do no harm), or has more than 2^26 pixels or 500 scans.
HostTensor decode_jpeg(std::span<const std::byte> file, const std::string& name);
/// The same of a PNG of any kind: grey and palettes become colours, 16 bits their upper 8, transparency is left out (as Pillow's convert("RGB")).
HostTensor decode_png(std::span<const std::byte> file, const std::string& name);
/// Which of the two it is, by its first bytes.
HostTensor decode_photo(std::span<const std::byte> file, const std::string& name);

/// u8 (height, width, 1) of colours: (19595 r + 38470 g + 7471 b + 2^15) / 2^16, as Pillow's convert("L").
HostTensor grey(const HostTensor& photo);

/// Bilinear, centres of pixels at half integers, aspect not kept. x: f32 (height, width, channels). With `antialias` a smaller image averages over
/// all pixels that it covers (as Pillow does, and TensorFlow when asked); without it reads two along each axis (tf.image.resize).
HostTensor resize_bilinear(const HostTensor& x, std::int64_t height, std::int64_t width, bool antialias = false);

}  // namespace belfry
