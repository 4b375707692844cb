#include <belfry/frontends/data/idx.h>

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>

namespace belfry {
namespace {

constexpr std::uint64_t kMostPerByte = 1032;  ///< no deflated byte gives more
constexpr std::uint64_t kUsualPerByte = 32;   ///< of pictures that were deflated

struct Code {
  int code;
  DType dtype;
};
constexpr Code kCodes[] = {{0x08, u8}, {0x0C, i32}, {0x0D, f32}, {0x0E, f64}};

/// The bytes of a file one after the other, unpacked if they are gzip.
class Source {
 public:
  Source(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {
    packed_ = file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
    if (!packed_) return;
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw InternalError("zlib does not start");
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(file.data()));
  }
  ~Source() { if (packed_) inflateEnd(&stream_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[noreturn]] void fail(std::uint64_t byte, const std::string& text) const { throw UserError(fmt::format("{}, byte {}: {}", name_, byte, text)); }

  /// How many bytes were read.
  std::uint64_t at() const { return at_; }
  /// No more bytes than this can follow.
  std::uint64_t most_left() const { return packed_ ? file_.size() * kMostPerByte : file_.size() - at_; }

  /// Fewer than asked for only where the file ends.
  std::size_t read(std::span<std::byte> out) {
    std::size_t n = packed_ ? unpack(out) : std::min<std::size_t>(out.size(), file_.size() - at_);
    if (!packed_ && n > 0) std::memcpy(out.data(), file_.data() + at_, n);
    at_ += n;
    return n;
  }

 private:
  std::size_t unpack(std::span<std::byte> out) {
    std::size_t made = 0;
    while (made < out.size() && !ended_) {
      const std::size_t consumed = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(stream_.next_in) - file_.data());
      constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
      const std::size_t room = std::min(kMost, out.size() - made), left = std::min(kMost, file_.size() - consumed);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + made);
      stream_.avail_out = static_cast<uInt>(room);
      stream_.avail_in = static_cast<uInt>(left);
      int status = inflate(&stream_, Z_NO_FLUSH);
      made += room - stream_.avail_out;
      if (status == Z_STREAM_END) end_member();
      else if (status == Z_BUF_ERROR || (status == Z_OK && stream_.avail_in == 0 && left == file_.size() - consumed && stream_.avail_out > 0))
        fail(at_ + made, fmt::format("the gzip file of {} bytes is cut short", file_.size()));
      else if (status != Z_OK) fail(at_ + made, fmt::format("the gzip file is damaged: {}", stream_.msg ? stream_.msg : "zlib gives no reason"));
    }
    return made;
  }

  /// A gzip file may hold several members, and nothing else.
  void end_member() {
    std::span<const std::byte> rest = file_.subspan(static_cast<std::size_t>(reinterpret_cast<const std::byte*>(stream_.next_in) - file_.data()));
    ended_ = rest.empty();
    if (ended_) return;
    if (rest.size() < 2 || rest[0] != std::byte{0x1f} || rest[1] != std::byte{0x8b}) fail(at_, fmt::format("{} bytes after the end of the gzip data", rest.size()));
    inflateReset(&stream_);
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  bool packed_ = false, ended_ = false;
  std::uint64_t at_ = 0;
  z_stream stream_{};
};

std::uint32_t big_endian(const std::byte* from) {
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out = out << 8 | std::to_integer<std::uint32_t>(from[i]);
  return out;
}

void swap_elements(std::byte* data, std::size_t bytes, std::size_t size) {
  for (std::size_t at = 0; size > 1 && at < bytes; at += size) std::reverse(data + at, data + at + size);
}

LocalType read_head(Source& source) {
  std::byte magic[4];
  if (source.read(magic) < 4) source.fail(source.at(), "is cut short: an IDX file begins with 4 bytes of magic");
  const std::uint32_t word = big_endian(magic);
  const int code = static_cast<int>(word >> 8 & 0xff), rank = static_cast<int>(word & 0xff);
  if (word >> 16 != 0) source.fail(0, fmt::format("magic 0x{:08x} is not that of IDX, which is 0x00000803 for images and 0x00000801 for labels", word));
  auto known = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return c.code == code; });
  if (known == std::end(kCodes)) source.fail(2, fmt::format("IDX type 0x{:02x} is not read here; 0x08 u8, 0x0c i32, 0x0d f32 and 0x0e f64 are", code));
  if (rank == 0) source.fail(3, "an IDX array of rank 0");

  LocalType type{known->dtype, {}};
  std::uint64_t bytes = size_of(type.dtype);
  for (int i = 0; i < rank; ++i) {
    std::byte size[4];
    if (source.read(size) < 4) source.fail(source.at(), fmt::format("is cut short in the sizes of its {} axes", rank));
    type.shape.push_back(big_endian(size));
    if (__builtin_mul_overflow(bytes, std::uint64_t{big_endian(size)}, &bytes) || bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      source.fail(source.at() - 4, fmt::format("the shape {} has more than 2^63 bytes", to_string(std::span(type.shape))));
  }
  if (bytes > source.most_left()) source.fail(source.at(), fmt::format("{} takes {} bytes, but at most {} follow: it is cut short", to_string(type), bytes, source.most_left()));
  return type;
}

[[noreturn]] void fail_short(const Source& source, const LocalType& type, std::uint64_t got) {
  source.fail(source.at(), fmt::format("{} takes {} bytes, but {} follow: it is cut short", to_string(type), type.bytes(), got));
}

/// Unpacks all of it piece by piece, before there is room for what its head says.
void refuse_short(std::span<const std::byte> bytes, const std::string& name) {
  Source source(bytes, name);
  const LocalType type = read_head(source);
  const auto wanted = static_cast<std::uint64_t>(type.bytes());
  std::vector<std::byte> piece(1 << 16);
  std::uint64_t got = 0;
  while (got < wanted) {
    const std::size_t n = source.read(piece);
    if (n == 0) fail_short(source, type, got);
    got += n;
  }
}

}  // namespace

HostTensor parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  Source source(bytes, name);
  LocalType type = read_head(source);
  if (static_cast<std::uint64_t>(type.bytes()) > kUsualPerByte * bytes.size()) refuse_short(bytes, name);
  HostTensor out(type.dtype, type.shape);
  std::span<std::byte> data(out.raw(), out.bytes().size());
  std::size_t got = source.read(data);
  if (got < data.size()) fail_short(source, type, got);
  std::byte more[1];
  if (source.read(more) != 0) source.fail(source.at() - 1, fmt::format("bytes after the end of {}", to_string(type)));
  swap_elements(out.raw(), data.size(), size_of(type.dtype));
  return out;
}

HostTensor read_idx(const std::filesystem::path& path) {
  return parse_idx(MappedFile(path).bytes(), path.string());
}

void write_idx(const std::filesystem::path& path, const HostTensor& tensor) {
  auto known = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return c.dtype == tensor.dtype(); });
  if (known == std::end(kCodes)) throw UserError(fmt::format("{}: IDX has no type for {}; cast to u8, i32, f32 or f64", path.string(), name_of(tensor.dtype())));
  const Extents& shape = tensor.shape();
  if (shape.empty() || shape.size() > 255) throw UserError(fmt::format("{}: IDX has 1 to 255 axes, not {}", path.string(), shape.size()));
  std::vector<char> head = {0, 0, static_cast<char>(known->code), static_cast<char>(shape.size())};
  for (std::int64_t n : shape) {
    if (n > std::numeric_limits<std::uint32_t>::max()) throw UserError(fmt::format("{}: an axis of {} is too long for IDX", path.string(), n));
    for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<char>(n >> shift));
  }
  std::vector<std::byte> data(tensor.bytes().begin(), tensor.bytes().end());
  swap_elements(data.data(), data.size(), size_of(tensor.dtype()));

  write_file(path, {std::as_bytes(std::span(head)), std::span<const std::byte>(data)});
}

}  // namespace belfry
