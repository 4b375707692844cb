#include <belfry/frontends/data/mnist.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/data/idx.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

constexpr std::array kFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

HostTensor images(const std::filesystem::path& path) {
  HostTensor bytes = read_idx(path);
  if (bytes.dtype() != u8 || bytes.shape().size() != 3 || bytes.shape()[1] != 28 || bytes.shape()[2] != 28)
    throw UserError(fmt::format("{}: {} is not u8(n, 28, 28) of images", path.string(), to_string(bytes.type())));
  return HostTensor::of<std::uint8_t>({bytes.shape()[0], 28, 28, 1}, bytes.data<std::uint8_t>());
}

HostTensor labels(const std::filesystem::path& path) {
  HostTensor bytes = read_idx(path);
  if (bytes.dtype() != u8 || bytes.shape().size() != 1) throw UserError(fmt::format("{}: {} is not u8(n) of labels", path.string(), to_string(bytes.type())));
  auto from = bytes.data<std::uint8_t>();
  auto bad = std::find_if(from.begin(), from.end(), [](std::uint8_t b) { return b > 9; });
  if (bad != from.end()) throw UserError(fmt::format("{}, label {}: {} is no digit", path.string(), bad - from.begin(), *bad));
  return converted(bytes, i32);
}

DataSet part(const std::filesystem::path& image_path, const std::filesystem::path& label_path) {
  DataSet out;
  out.columns.emplace("image", images(image_path));
  out.columns.emplace("label", labels(label_path));
  std::int64_t n = out.columns.at("image").shape()[0], m = out.columns.at("label").shape()[0];
  if (n == 0) throw UserError(fmt::format("{}: holds no images", image_path.string()));
  if (n != m) throw UserError(fmt::format("{} holds {} images, but {} holds {} labels", image_path.string(), n, label_path.string(), m));
  return out;
}

}  // namespace

Splits mnist_bytes(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> missing;
  for (const char* name : kFiles) {
    std::error_code ignored;
    std::filesystem::path plain = dir / name, packed = dir / fmt::format("{}.gz", name);
    if (std::filesystem::exists(plain, ignored)) paths.push_back(plain);
    else if (std::filesystem::exists(packed, ignored)) paths.push_back(packed);
    else missing.push_back(name);
  }
  if (!missing.empty()) throw UserError(fmt::format("{}: no {}, with or without .gz; MNIST is four files in one folder", dir.string(), fmt::join(missing, ", ")));
  return {.train = part(paths[0], paths[1]), .test = part(paths[2], paths[3])};
}

Splits mnist(const std::filesystem::path& dir) {
  const DefaultFloats floats;
  Splits out = mnist_bytes(dir);
  for (DataSet* part : {&out.train, &out.test}) {
    HostTensor& image = part->columns.at("image");
    image = converted(image, f32);
    for (float& x : image.data<float>()) x /= 255.0f;
  }
  return out;
}

}  // namespace belfry
