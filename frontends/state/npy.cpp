#include <belfry/frontends/state/npy.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/whole_numbers_internal.h>

namespace belfry {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kNpyAlignment = 64;

struct NpyCode {
  std::string_view text;
  DType dtype;
};
constexpr NpyCode kNpyCodes[] = {{"<f4", f32}, {"<f8", f64}, {"<i4", i32}, {"<i8", i64}, {"|u1", u8}, {"|b1", boolean}, {"<f2", f16}};

/// A header of one Python dict literal with exactly the keys descr, fortran_order and shape.
class NpyReader {
 public:
  NpyReader(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  HostTensor read() {
    split_header();
    parse_header();
    std::uint64_t bytes = element_bytes();
    for (std::int64_t n : *shape_)
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes) || bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(begin_, fmt::format("the shape {} has more than 2^63 bytes", to_string(std::span(*shape_))));
    LocalType type{*dtype_, *shape_};
    if (bytes != buffer_.size()) fail(file_.size() - buffer_.size(), fmt::format("{} takes {} bytes, but {} follow the header", narrow_ ? fmt::format("'{}' of {}", narrow_->npy, to_string(std::span(*shape_))) : to_string(type), bytes, buffer_.size()));
    if (*dtype_ == boolean) {
      auto bad = std::find_if(buffer_.begin(), buffer_.end(), [](std::byte b) { return b > std::byte{1}; });
      if (bad != buffer_.end()) fail(static_cast<std::size_t>(&*bad - file_.data()), fmt::format("{} is no bool; 0 and 1 are", std::to_integer<int>(*bad)));
    }
    HostTensor out(*dtype_, *shape_);
    const bool turned = *fortran_ && shape_->size() > 1;
    if (narrow_) {
      std::vector<std::byte> in_order(turned ? buffer_.size() : 0);
      if (turned) from_fortran(in_order.data());
      widen_into(out, turned ? std::span<const std::byte>(in_order) : buffer_);
    } else if (turned) {
      from_fortran(out.raw());
    } else if (!buffer_.empty()) {
      std::memcpy(out.raw(), buffer_.data(), buffer_.size());
    }
    return out;
  }

 private:
  [[noreturn]] void fail(std::size_t byte, const std::string& text) const { throw UserError(fmt::format("{}, byte {}: {}", name_, byte, text)); }
  [[noreturn]] void fail_here(const std::string& text) const { fail(begin_ + at_, text); }
  [[noreturn]] void refuse_type(const std::string& text) const { throw TypeNotRead(fmt::format("{}, byte {}: {}", name_, begin_ + at_, text)); }
  std::size_t element_bytes() const { return narrow_ ? narrow_->bytes : size_of(*dtype_); }

  void widen_into(HostTensor& out, std::span<const std::byte> from) const {
    const std::span<std::int64_t> values = out.data<std::int64_t>();
    narrow_->widen(from, values);
    if (const std::size_t i = first_too_large(*narrow_, values); i < values.size())
      throw UserError(fmt::format("{}: element {} is {}, which i64 does not hold; convert it with astype() before saving", name_, i, static_cast<std::uint64_t>(values[i])));
  }

  void split_header() {
    std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (!text.starts_with(kMagic)) fail(0, "is no .npy file: it does not begin with \\x93NUMPY");
    if (text.size() < 10) fail(text.size(), "is cut short in the .npy header");
    int version = static_cast<unsigned char>(text[6]);
    if (version < 1 || version > 3 || text[7] != 0) fail(6, fmt::format(".npy version {}.{}; 1.0, 2.0 and 3.0 are read", version, static_cast<unsigned char>(text[7])));
    std::size_t width = version == 1 ? 2 : 4;
    begin_ = 8 + width;
    if (text.size() < begin_) fail(text.size(), "is cut short in the .npy header");
    std::uint32_t length = 0;
    std::memcpy(&length, file_.data() + 8, width);
    if (length > text.size() - begin_) fail(8, fmt::format("a header of {} bytes does not fit into a file of {}: it is cut short", length, text.size()));
    header_ = text.substr(begin_, length);
    buffer_ = file_.subspan(begin_ + length);
  }

  void parse_header() {
    expect('{');
    for (bool more = !next_is('}'); more;) {
      std::string_view key = quoted();
      expect(':');
      bool twice = (key == "descr" && dtype_) || (key == "fortran_order" && fortran_) || (key == "shape" && shape_);
      if (twice) fail_here(fmt::format("'{}' stands twice in the header", key));
      if (key == "descr") read_descr();
      else if (key == "fortran_order") read_order();
      else if (key == "shape") read_shape();
      else fail_here(fmt::format("unknown key '{}' in the header", key));
      more = !next_is('}');
      if (more) {
        expect(',');
        more = !next_is('}');
      }
    }
    expect('}');
    skip_space();
    if (at_ != header_.size()) fail_here("text after the header's dict");
    if (!dtype_ || !fortran_ || !shape_) fail(begin_, "the header lacks descr, fortran_order or shape");
  }

  void read_descr() {
    if (next_is('[') || next_is('(')) refuse_type("a structured dtype; save its fields one by one");
    std::string_view code = quoted();
    auto known = std::find_if(std::begin(kNpyCodes), std::end(kNpyCodes), [&](const NpyCode& c) { return c.text == code; });
    auto narrow = std::find_if(std::begin(kWholeNumbers), std::end(kWholeNumbers), [&](const WholeNumbers& n) { return n.npy == code; });
    if (narrow != std::end(kWholeNumbers)) narrow_ = narrow;
    else if (known == std::end(kNpyCodes)) refuse_type(fmt::format("dtype '{}' is not read here; little-endian floats, whole numbers and |b1 are: convert it with astype() before saving", code));
    dtype_ = narrow_ ? i64 : known->dtype;
  }

  void read_order() {
    skip_space();
    for (bool value : {false, true}) {
      std::string_view word = value ? "True" : "False";
      if (!header_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      fortran_ = value;
      return;
    }
    fail_here("fortran_order is neither True nor False");
  }

  void read_shape() {
    shape_.emplace();
    expect('(');
    while (!next_is(')')) {
      std::int64_t n = 0;
      auto [end, status] = std::from_chars(header_.data() + at_, header_.data() + header_.size(), n);
      if (status != std::errc{} || n < 0) fail_here("the shape holds what is no size");
      at_ = static_cast<std::size_t>(end - header_.data());
      shape_->push_back(n);
      // One size alone needs its comma, or it is no tuple.
      if (!next_is(')') || shape_->size() == 1) expect(',');
    }
    expect(')');
  }

  void skip_space() { while (at_ < header_.size() && (header_[at_] == ' ' || header_[at_] == '\n' || header_[at_] == '\t')) ++at_; }
  bool next_is(char c) {
    skip_space();
    return at_ < header_.size() && header_[at_] == c;
  }
  void expect(char c) {
    if (!next_is(c)) fail_here(fmt::format("the header has no '{}' here", c));
    ++at_;
  }
  std::string_view quoted() {
    skip_space();
    char quote = at_ < header_.size() ? header_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail_here("the header has no quoted text here");
    std::size_t end = header_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail_here("a quoted text of the header does not end");
    std::string_view out = header_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }

  void from_fortran(std::byte* out) const {
    std::size_t size = element_bytes(), rank = shape_->size();
    std::vector<std::size_t> stride(rank, size);
    for (std::size_t i = 1; i < rank; ++i) stride[i] = stride[i - 1] * static_cast<std::size_t>((*shape_)[i - 1]);
    std::vector<std::int64_t> index(rank, 0);
    for (std::size_t to = 0, from = 0; to < buffer_.size(); to += size) {
      std::memcpy(out + to, buffer_.data() + from, size);
      for (std::size_t i = rank; i-- > 0;) {
        from += stride[i];
        if (++index[i] < (*shape_)[i]) break;
        from -= stride[i] * static_cast<std::size_t>((*shape_)[i]);
        index[i] = 0;
      }
    }
  }

  std::span<const std::byte> file_, buffer_;
  std::string_view header_;
  const std::string& name_;
  std::size_t begin_ = 0, at_ = 0;  ///< of the header in the file, in the header
  std::optional<DType> dtype_;
  const WholeNumbers* narrow_ = nullptr;  ///< what the file has, where that is read as i64
  std::optional<bool> fortran_;
  std::optional<Extents> shape_;
};

}  // namespace

std::string npy_head(const HostTensor& tensor) {
  auto code = std::find_if(std::begin(kNpyCodes), std::end(kNpyCodes), [&](const NpyCode& c) { return c.dtype == tensor.dtype(); });
  if (code == std::end(kNpyCodes)) throw UserError(fmt::format(".npy has no code for {}; convert the tensor to f32 first", name_of(tensor.dtype())));
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", code->text, fmt::join(tensor.shape(), ", "), tensor.shape().size() == 1 ? "," : "");
  bool wide = dict.size() + kNpyAlignment > 65535;
  std::size_t before = wide ? 12 : 10;
  dict.append((kNpyAlignment - (before + dict.size() + 1) % kNpyAlignment) % kNpyAlignment, ' ');
  dict += '\n';
  std::string head(kMagic);
  head += wide ? '\2' : '\1';
  head += '\0';
  for (std::size_t i = 0; i < before - 8; ++i) head += static_cast<char>(dict.size() >> (8 * i));
  return head + dict;
}

HostTensor parse_npy(std::span<const std::byte> bytes, const std::string& name) { return NpyReader(bytes, name).read(); }

HostTensor read_npy(const std::filesystem::path& path) {
  MappedFile file(path);
  return parse_npy(file.bytes(), path.string());
}

void write_npy(const std::filesystem::path& path, const HostTensor& tensor) {
  std::string head = npy_head(tensor);
  write_file(path, {std::as_bytes(std::span(head)), tensor.bytes()});
}

std::vector<std::byte> npy_bytes(const HostTensor& tensor) {
  std::string head = npy_head(tensor);
  auto head_bytes = std::as_bytes(std::span(head));
  std::vector<std::byte> out(head_bytes.begin(), head_bytes.end());
  out.insert(out.end(), tensor.bytes().begin(), tensor.bytes().end());
  return out;
}

}  // namespace belfry
