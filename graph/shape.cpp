#include <belfry/graph/shape.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/graph/graph.h>

namespace belfry {

std::string SourceLine::text() const {
  if (!file) return {};
  std::string_view path = file;
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), line);
}

std::string SourceLine::aside() const { return file ? " (" + text() + ")" : ""; }

void wrong_dtype(DType dtype, const char* wanted) { throw InternalError(fmt::format("{} is not {}", name_of(dtype), wanted)); }

std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "f64", "i32", "i64", "u8", "bool", "f16", "bf16"};
  return kNames[static_cast<int>(dtype)];
}

DType parse_dtype(std::string_view text) {
  for (DType d : kAllDTypes)
    if (name_of(d) == text) return d;
  std::vector<std::string> known;
  for (DType d : kAllDTypes) known.emplace_back(name_of(d));
  throw UserError(fmt::format("unknown dtype '{}'; known are {}{}", text, fmt::join(known, ", "), did_you_mean(text, known)));
}

bool is_value_of(DType dtype, double value) {
  return visit_stored(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const double low = static_cast<double>(std::numeric_limits<T>::lowest()), high = static_cast<double>(std::numeric_limits<T>::max());
      return value >= low && value <= high && (sizeof(T) < 8 || value < high) && std::trunc(value) == value;
    } else {
      return true;
    }
  });
}

std::size_t size_of(DType dtype) {
  return visit_stored(dtype, []<class T>() { return sizeof(T); });
}

std::int64_t Dim::at(std::int64_t n) const {
  if (!symbolic()) return factor;
  std::int64_t out = 0;
  if (__builtin_mul_overflow(factor, n, &out)) throw UserError(fmt::format("{} with {} = {} does not fit in 63 bits", to_string(*this), symbol, n));
  return out;
}

std::string to_string(const Dim& dim) {
  if (!dim.symbolic()) return std::to_string(dim.factor);
  return dim.factor == 1 ? dim.symbol : fmt::format("{}*{}", dim.factor, dim.symbol);
}

static bool is_symbol(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || digit(c); });
}

Dim parse_dim(std::string_view text) {
  Dim out;
  std::string_view rest = text;
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out.factor);
    if (status != std::errc{} || (out.factor == 0 && *text.data() != '0')) rest = "?";
    else rest = text.substr(static_cast<std::size_t>(end - text.data()));
    if (rest.empty()) return out;
    if (rest[0] == '*') rest.remove_prefix(1);
    else rest = "?";
  }
  if (!is_symbol(rest) || out.factor < 1) throw UserError(fmt::format("'{}' is no dimension; write 28, \"batch\" or \"2*batch\"", text));
  out.symbol = rest;
  return out;
}

std::string to_string(std::span<const Dim> shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + to_string(shape[i]);
  return out + ")";
}

std::string to_string(std::span<const std::int64_t> extents) { return fmt::format("({})", fmt::join(extents, ", ")); }

Extents extents_of(const Shape& shape, std::int64_t batch) {
  Extents out;
  out.reserve(shape.size());
  for (const Dim& d : shape) out.push_back(d.at(batch));
  return out;
}

std::int64_t factor_of(const Shape& shape) {
  std::int64_t out = 1;
  for (const Dim& d : shape)
    if (__builtin_mul_overflow(out, d.factor, &out)) return std::numeric_limits<std::int64_t>::max();
  return out;
}

std::int64_t elements(const Extents& extents) {
  std::int64_t n = 1;
  for (std::int64_t e : extents)
    if (__builtin_mul_overflow(n, e, &n)) throw UserError(fmt::format("the shape {} has more than 2^63 elements", to_string(std::span(extents))));
  return n;
}

std::vector<int> symbolic_axes(const Shape& shape) {
  std::vector<int> out;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i].symbolic()) out.push_back(static_cast<int>(i));
  return out;
}

bool broadcast(const std::vector<Shape>& shapes, Shape& out) {
  std::size_t rank = 0;
  for (const Shape& s : shapes) rank = std::max(rank, s.size());
  out.assign(rank, Dim(1));
  for (const Shape& s : shapes) {
    for (std::size_t i = 0; i < s.size(); ++i) {
      Dim& wide = out[rank - s.size() + i];
      if (s[i] == Dim(1) || s[i] == wide) continue;
      if (wide != Dim(1)) return false;
      wide = s[i];
    }
  }
  return true;
}

LocalType local_type(const TensorType& type, std::int64_t batch) { return {type.dtype, extents_of(type.shape, batch)}; }

std::int64_t LocalType::bytes() const {
  std::int64_t out = 0;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 0; })) throw UserError(fmt::format("{} has a negative size: axes are of 0 on", to_string(*this)));
  if (__builtin_mul_overflow(elements(), static_cast<std::int64_t>(size_of(dtype)), &out)) throw UserError(fmt::format("{} has more than 2^63 bytes", to_string(*this)));
  return out;
}

std::string to_string(const TensorType& type) { return fmt::format("{}{}", name_of(type.dtype), to_string(std::span(type.shape))); }
std::string to_string(const LocalType& type) { return fmt::format("{}{}", name_of(type.dtype), to_string(std::span(type.shape))); }

}  // namespace belfry
