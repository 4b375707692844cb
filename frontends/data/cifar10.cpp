#include <belfry/frontends/data/cifar10.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>

namespace belfry {

namespace {

constexpr std::size_t kSide = 32, kCrop = 24, kBegin = (kSide - kCrop) / 2, kPlane = kSide * kSide, kRecord = 1 + 3 * kPlane, kPixels = kCrop * kCrop * 3;

void crop_and_standardise(const std::uint8_t* planes, float* out) {
  double sum = 0, squares = 0;
  std::array<double, kPixels> x;
  for (std::size_t i = 0; i < kPixels; ++i) {
    std::size_t row = i / (kCrop * 3), column = i / 3 % kCrop, colour = i % 3;
    x[i] = planes[colour * kPlane + (kBegin + row) * kSide + kBegin + column];
    sum += x[i];
  }
  const double mean = sum / kPixels;
  for (double v : x) squares += (v - mean) * (v - mean);
  const double deviation = std::max(std::sqrt(squares / kPixels), 1 / std::sqrt(static_cast<double>(kPixels)));
  for (std::size_t i = 0; i < kPixels; ++i) out[i] = static_cast<float>((x[i] - mean) / deviation);
}

DataSet read(const std::vector<std::filesystem::path>& files) {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  for (const auto& path : files) {
    MappedFile file(path);
    auto bytes = reinterpret_cast<const std::uint8_t*>(file.bytes().data());
    const std::size_t size = file.bytes().size();
    if (size == 0 || size % kRecord) throw UserError(fmt::format("{}: {} bytes are no whole number of records of {}", path.string(), size, kRecord));
    for (std::size_t at = 0; at < size; at += kRecord) {
      if (bytes[at] > 9) throw UserError(fmt::format("{}, byte {}: {} is no label of 0 to 9", path.string(), at, bytes[at]));
      labels.push_back(bytes[at]);
      images.resize(images.size() + kPixels);
      crop_and_standardise(bytes + at + 1, images.data() + images.size() - kPixels);
    }
  }
  DataSet out;
  const auto n = static_cast<std::int64_t>(labels.size());
  out.columns.emplace("image", HostTensor::of<float>({n, kCrop, kCrop, 3}, images));
  out.columns.emplace("label", HostTensor::of<std::int32_t>({n}, labels));
  return out;
}

}  // namespace

Splits cifar10(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> train, test;
  std::error_code error;
  for (const auto& e : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = e.path().filename().string();
    if (!name.ends_with(".bin")) continue;
    if (name.starts_with("data_batch")) train.push_back(e.path());
    if (name.starts_with("test_batch")) test.push_back(e.path());
  }
  if (error) throw UserError(fmt::format("{}: cannot be listed: {}", dir.string(), error.message()));
  if (train.empty()) throw UserError(fmt::format("{}: no data_batch_*.bin; CIFAR-10 in its binary form is data_batch_1.bin to data_batch_5.bin and test_batch.bin", dir.string()));
  std::sort(train.begin(), train.end());
  std::sort(test.begin(), test.end());
  return {.train = read(train), .test = read(test)};
}

}  // namespace belfry
