#include <belfry/frontends/data/cifar10.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/graph/float_environment.h>

namespace belfry {

namespace {

constexpr std::size_t kSide = 32, kPlane = kSide * kSide, kRecord = 1 + 3 * kPlane;

DataSet read_records(const std::vector<std::filesystem::path>& files) {
  std::size_t count = 0;
  std::vector<std::unique_ptr<MappedFile>> mapped;
  for (const auto& path : files) {
    mapped.push_back(std::make_unique<MappedFile>(path));
    const std::size_t size = mapped.back()->bytes().size();
    if (size == 0 || size % kRecord) throw UserError(fmt::format("{}: {} bytes are no whole number of records of {}", path.string(), size, kRecord));
    count += size / kRecord;
  }
  const auto n = static_cast<std::int64_t>(count);
  HostTensor images(u8, {n, kSide, kSide, 3}), labels(i32, {n});
  std::uint8_t* pixel = images.data<std::uint8_t>().data();
  std::int32_t* label = labels.data<std::int32_t>().data();
  for (std::size_t f = 0; f < files.size(); ++f) {
    auto bytes = reinterpret_cast<const std::uint8_t*>(mapped[f]->bytes().data());
    for (std::size_t at = 0; at < mapped[f]->bytes().size(); at += kRecord) {
      if (bytes[at] > 9) throw UserError(fmt::format("{}, byte {}: {} is no label of 0 to 9", files[f].string(), at, bytes[at]));
      *label++ = bytes[at];
      for (std::size_t i = 0; i < kPlane; ++i)
        for (std::size_t colour = 0; colour < 3; ++colour) *pixel++ = bytes[at + 1 + colour * kPlane + i];
    }
  }
  DataSet out;
  out.columns.emplace("image", std::move(images));
  out.columns.emplace("label", std::move(labels));
  return out;
}

HostTensor standardised_middles(const HostTensor& bytes, std::int64_t size) {
  HostTensor out = converted(middles(bytes, size, size), f32);
  const auto elements = static_cast<std::size_t>(size * size * 3);
  for (std::int64_t i = 0; i < bytes.shape()[0]; ++i) standardise(out.data<float>().subspan(static_cast<std::size_t>(i) * elements, elements));
  return out;
}

}  // namespace

Splits cifar10_bytes(const std::filesystem::path& dir) {
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
  return {.train = read_records(train), .test = read_records(test)};
}

Splits cifar10(const std::filesystem::path& dir, const Cifar10Options& o) {
  const DefaultFloats floats;
  const std::int64_t side = kSide, crop = o.distortions ? o.distortions->crop : 0;
  if (o.size < 1 || o.size > side - crop) throw UserError(fmt::format("{}: images of {} x {} with crop={} are not in 32 x 32", dir.string(), o.size, o.size, crop));
  Splits out = cifar10_bytes(dir);
  for (DataSet* part : {&out.train, &out.test}) {
    HostTensor& image = part->columns.at("image");
    if (!o.distortions || part == &out.test) {
      image = standardised_middles(image, o.size);
      continue;
    }
    auto bytes = std::make_shared<const HostTensor>(middles(image, o.size + crop, o.size + crop));
    part->columns.erase("image");
    part->made["image"] = distorted_column(bytes, *o.distortions, {.standardised = true});
  }
  return out;
}

}  // namespace belfry
