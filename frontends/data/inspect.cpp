#include <belfry/frontends/data/inspect.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/data/arrays.h>
#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/data/images.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/files/files.h>

namespace belfry {
namespace {

constexpr std::size_t kMostClasses = 1000, kFirst = 10;

/// Sums over values that come channel by channel.
class Spread {
 public:
  explicit Spread(std::size_t channels) : sums_(channels), squares_(channels) {}
  template <class T>
  void add(std::span<const T> values, double scale) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(values[i]) * scale;
      sums_[i % sums_.size()] += x;
      squares_[i % sums_.size()] += x * x;
    }
    count_ += static_cast<double>(values.size()) / static_cast<double>(sums_.size());
  }
  void note(ColumnFacts& out) const {
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      const double mean = sums_[k] / count_, variance = squares_[k] / count_ - mean * mean;
      constexpr double kNan = std::numeric_limits<double>::quiet_NaN();  // printed with no sign
      out.mean.push_back(std::isnan(mean) ? kNan : mean);
      out.deviation.push_back(std::isnan(variance) ? kNan : std::sqrt(std::max(0.0, variance)));
    }
  }

 private:
  std::vector<double> sums_, squares_;
  double count_ = 0;
};

ColumnFacts facts_of(const HostTensor& x) {
  ColumnFacts out{.type = x.type()};
  const bool picture = x.shape().size() == 4, integers = x.shape().size() == 1 && !is_float(x.dtype()) && !is_half(x.dtype());
  if (x.elements() == 0) return out;
  visit_stored(x.dtype(), [&]<class T>() {
    const auto values = x.data<T>();
    if (integers) {
      for (const T& v : values) {
        if (out.first.size() < kFirst) out.first.push_back(static_cast<std::int64_t>(v));
        if (out.classes.size() <= kMostClasses) ++out.classes[static_cast<std::int64_t>(v)];
      }
      if (out.classes.size() > kMostClasses) out.classes.clear();
      return;
    }
    Spread spread(picture ? static_cast<std::size_t>(x.shape()[3]) : 1);
    spread.add<T>(values, x.dtype() == u8 ? 1.0 / 255 : 1);
    spread.note(out);
  });
  return out;
}

/// The label of a table, whose numbers are f64, as the classes that it counts.
DataSet with_classes(DataSet data) {
  const auto label = data.columns.find("label");
  if (label == data.columns.end() || !is_float(label->second.dtype())) return data;
  const HostTensor all = converted(label->second, f64);
  const std::span<const double> values = all.data<double>();
  if (std::all_of(values.begin(), values.end(), [](double x) { return std::abs(x) < 1e9 && x == std::floor(x); })) label->second = converted(all, i32);
  return data;
}

SplitFacts facts_of(const std::string& name, const DataSet& data) {
  SplitFacts out{name, data.rows(), {}};
  for (const auto& [column, tensor] : data.columns) out.columns.emplace(column, facts_of(tensor));
  return out;
}

SplitFacts facts_of_photos(const std::string& name, const std::filesystem::path& root, std::vector<std::string>& classes) {
  const ImageFolder folder = list_image_folder(root, {}, classes);
  classes = folder.classes;
  SplitFacts out = facts_of(name, folder.data);
  ColumnFacts image;
  Spread spread(3);
  std::int64_t height = 0, width = 0;
  for (const std::string& f : folder.files) {
    const MappedFile file(root / f);
    const HostTensor photo = decode_photo(file.bytes(), (root / f).string());
    const std::int64_t h = photo.shape()[0], w = photo.shape()[1];
    image.least_height = height ? std::min(image.least_height, h) : h;
    image.least_width = width ? std::min(image.least_width, w) : w;
    height = std::max(height, h);
    width = std::max(width, w);
    spread.add<std::uint8_t>(photo.data<std::uint8_t>(), 1.0 / 255);
  }
  image.type = {u8, {out.rows, height, width, 3}};
  spread.note(image);
  out.columns.emplace("image", std::move(image));
  return out;
}

SplitFacts facts_of_text(const std::filesystem::path& dir) {
  SplitFacts out{"text", 0, {}};
  for (const auto& e : std::filesystem::directory_iterator(dir))
    if (e.path().extension() == ".txt") out.rows += static_cast<std::int64_t>(MappedFile(e.path()).bytes().size());  // which says what is wrong with it
  out.columns["byte"].type = {u8, {out.rows}};
  return out;
}

}  // namespace

DataFacts inspect_data(const std::filesystem::path& path) {
  DataFacts out{.kind = data_kind(path)};
  auto add = [&](const Splits& s) { out.splits = {facts_of("train", s.train), facts_of("test", s.test)}; };
  switch (out.kind) {
    case DataKind::mnist: add(mnist_bytes(path)); break;
    case DataKind::cifar10: add(cifar10_bytes(path)); break;
    case DataKind::text: out.splits = {facts_of_text(path)}; break;
    case DataKind::photos:
      if (std::error_code error; !std::filesystem::exists(path / "train", error)) {
        out.splits = {facts_of_photos("all", path, out.classes)};
        break;
      }
      for (const std::filesystem::path& part : {path / "train", held_out(path)}) out.splits.push_back(facts_of_photos(part.filename().string(), part, out.classes));
      break;
    default: {
      Splits parts = read_parts(path, out.kind);
      if (out.kind == DataKind::tables)
        for (DataSet* part : {&parts.train, &parts.test}) *part = with_classes(std::move(*part));
      out.classes = parts.classes;
      if (parts.test.columns.empty()) out.splits = {facts_of("all", parts.train)};
      else add(parts);
    }
  }
  return out;
}

}  // namespace belfry
