#include <belfry/frontends/data/pictures.h>

#include <algorithm>
#include <cctype>
#include <string>

#include <fmt/format.h>

#include <belfry/frontends/data/images.h>
#include <belfry/frontends/files/files.h>

namespace belfry {
namespace {

namespace fs = std::filesystem;

PictureSize resized(const PictureSize& size, const Pixels& pixels) { return pixels.resized ? PictureSize{pixels.resized, pixels.resized, size.channels} : size; }

/// What is wrong with axes that are near.
const char* misfit(const Extents& s, const PictureSize& size, const PictureSize& larger) {
  for (const PictureSize& p : {size, larger}) {
    if (s == Extents{p.height, p.width, p.channels} || (p.channels == 1 && s == Extents{p.height, p.width})) return ": add the axis of rows, n = 1";
    if (s.size() == 4 && s[1] == p.channels && s[2] == p.height && s[3] == p.width) return ": channels come last";
  }
  return "";
}

/// The middle of a picture of bytes' range, scaled.
void make_row(std::span<const float> picture, const PictureSize& from, const PictureSize& to, const Rescale& how, std::span<float> row) {
  change(picture, from, {.top = (from.height - to.height) / 2, .left = (from.width - to.width) / 2}, to, row);
  rescale(row, how);
}

}  // namespace

bool is_picture(const fs::path& file) {
  std::string suffix = file.extension().string();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".png";
}

std::vector<fs::path> files_passed_over(const fs::path& dir) {
  std::vector<fs::path> out;
  std::error_code error;
  const int classes = fs::is_directory(dir / "train", error) ? 2 : 1;
  for (fs::recursive_directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (at.depth() == classes && at->is_regular_file(error) && !at->path().filename().string().starts_with('.') && !is_picture(at->path())) out.push_back(at->path());
    if (at.depth() == classes) at.disable_recursion_pending();
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<fs::path> picture_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path, error)) {
      out.push_back(path);
      continue;
    }
    std::vector<fs::path> found;
    refuse_closed(path);
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (is_picture(at->path())) found.push_back(at->path());
      else refuse_closed(at->path());
    if (error) throw UserError(fmt::format("{}: cannot be listed: {}", path.string(), error.message()));
    if (found.empty()) throw UserError(fmt::format("{}: no .jpg, .jpeg or .png in this folder", path.string()));
    std::sort(found.begin(), found.end());
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

HostTensor read_photo(const fs::path& path, const PictureSize& size, bool antialias) {
  const MappedFile file(path);
  const HostTensor photo = decode_photo(file.bytes(), path.string());
  return resize_bilinear(converted(size.channels == 1 ? grey(photo) : photo, f32), size.height, size.width, antialias);
}

HostTensor read_pictures(std::span<const fs::path> files, const PictureSize& size, const Pixels& pixels) {
  if (size.channels != 1 && size.channels != 3) throw UserError(fmt::format("[data] pictures have 1 or 3 channels, not {}", size.channels));
  HostTensor out(f32, {static_cast<std::int64_t>(files.size()), size.height, size.width, size.channels});
  const PictureSize from = resized(size, pixels);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const HostTensor photo = read_photo(files[i], from, pixels.antialias);
    make_row(photo.data<float>(), from, size, pixels.rescale, out.data<float>().subspan(i * size.elements(), size.elements()));
  }
  return out;
}

HostTensor pictures_of(const HostTensor& bytes, const PictureSize& size, const Pixels& pixels) {
  const Extents& s = bytes.shape();
  const PictureSize larger = resized(size, pixels);
  const bool grey = s.size() == 3 && size.channels == 1, fits = bytes.dtype() == u8 && (grey || (s.size() == 4 && s[3] == size.channels));
  auto is = [&](const PictureSize& p) { return s[1] == p.height && s[2] == p.width; };
  if (!fits || (!is(size) && !is(larger)))
    throw UserError(fmt::format("[data] pictures of {} do not fit: u8 (n, {}, {}, {}) is expected{}{}", to_string(bytes.type()), larger.height, larger.width, size.channels, size.channels == 1 ? ", or without the 1" : "", misfit(s, size, larger)));
  const PictureSize from = is(size) ? size : larger;
  const HostTensor all = converted(bytes, f32);
  HostTensor out(f32, {s[0], size.height, size.width, size.channels});
  for (std::size_t i = 0; i < static_cast<std::size_t>(s[0]); ++i)
    make_row(all.data<float>().subspan(i * from.elements(), from.elements()), from, size, pixels.rescale, out.data<float>().subspan(i * size.elements(), size.elements()));
  return out;
}

}  // namespace belfry
