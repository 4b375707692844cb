#include <belfry/ops/image/image.h>

#include <cmath>

#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>

namespace belfry {

namespace {

[[noreturn]] void fail(const char* what, const std::string& message, const Value& x, SourceLine at) {
  throw UserError("[" + std::string(what) + "] " + message + ", not " + to_string(x.type()) + (at.file ? " at " + at.text() : ""));
}

/// Height, width and channels of a picture.
Extents picture(const char* what, const Value& x, SourceLine at) {
  const Shape& s = x.shape();
  if (s.size() != 4 || s[1].symbolic() || s[2].symbolic() || s[3].symbolic()) fail(what, "x must have 4 axes (n, h, w, c), the last three of fixed sizes", x, at);
  return {s[1].factor, s[2].factor, s[3].factor};
}

}  // namespace

Value space_to_depth(Value x, std::int64_t block, SourceLine at) {
  SourceGuard guard(graph_of(x, "space_to_depth", at), at);
  Extents e = picture("space_to_depth", x, at);
  if (block < 1 || e[0] % block || e[1] % block) fail("space_to_depth", "height and width must divide by the block of " + std::to_string(block), x, at);
  Dim n = x.shape()[0];
  Value blocks = transpose(reshape(x, {n, e[0] / block, block, e[1] / block, block, e[2]}), {0, 1, 3, 2, 4, 5});
  return reshape(blocks, {n, e[0] / block, e[1] / block, block * block * e[2]});
}

Value depth_to_space(Value x, std::int64_t block, SourceLine at) {
  SourceGuard guard(graph_of(x, "depth_to_space", at), at);
  Extents e = picture("depth_to_space", x, at);
  if (block < 1 || e[2] % block || e[2] / block % block) fail("depth_to_space", "the channels must divide by the square of the block of " + std::to_string(block), x, at);
  Dim n = x.shape()[0];
  std::int64_t c = e[2] / block / block;
  Value pixels = transpose(reshape(x, {n, e[0], e[1], block, block, c}), {0, 1, 3, 2, 4, 5});
  return reshape(pixels, {n, e[0] * block, e[1] * block, c});
}

Value adjust_brightness(Value x, double delta, SourceLine at) {
  SourceGuard guard(graph_of(x, "adjust_brightness", at), at);
  return x + delta;
}

Value adjust_contrast(Value x, double factor, SourceLine at) {
  SourceGuard guard(graph_of(x, "adjust_contrast", at), at);
  picture("adjust_contrast", x, at);
  Value mean = reduce_mean(x, {{1, 2}, true});
  return (x - mean) * factor + mean;
}

Value per_image_standardization(Value x, SourceLine at) {
  SourceGuard guard(graph_of(x, "per_image_standardization", at), at);
  Extents e = picture("per_image_standardization", x, at);
  double n = static_cast<double>(e[0]) * static_cast<double>(e[1]) * static_cast<double>(e[2]);
  Moments m = moments(x, {{1, 2, 3}, true});
  return (x - m.mean) / maximum(sqrt(m.variance), constant_like(m.variance, 1 / std::sqrt(n)));
}

}  // namespace belfry
