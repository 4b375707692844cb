#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/npy.h>

namespace belfry {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocator64Bytes = 20;
constexpr std::uint32_t kWide = 0xffffffff;  ///< the size stands in a zip64 field
constexpr std::uint16_t kField64 = 1;
constexpr std::uint16_t kStored = 0, kDeflated = 8;
constexpr std::uint64_t kMostPerByte = 1032;  ///< no deflated byte gives more
constexpr std::string_view kNpyEnding = ".npy";

struct Member {
  std::string name;  ///< with its ending
  std::uint16_t flags = 0, method = kStored;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0, offset = 0;
  std::uint64_t begin = 0;  ///< of the data
};

/// Of what other programs pack zip archives with.
std::string method_name(std::uint16_t method) {
  constexpr std::pair<std::uint16_t, const char*> kNames[] = {{9, "deflate64"}, {12, "bzip2"}, {14, "lzma"}, {93, "zstd"}, {95, "xz"}};
  for (const auto& [number, name] : kNames)
    if (number == method) return fmt::format("{} (method {})", name, method);
  return fmt::format("method {}", method);
}

class NpzReader {
 public:
  NpzReader(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  TensorMap read(const Wanted& wanted) {
    std::vector<Member> members = read_directory();
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.offset < b.offset; });
    std::uint64_t reached = 0;
    TensorMap out;
    std::set<std::string> keys;
    for (Member& m : members) {
      if (m.offset < reached) fail(m.offset, m, "overlaps the member before it");
      read_local(m);
      reached = m.begin + m.packed;
      std::string key = m.name.substr(0, m.name.size() - kNpyEnding.size());
      if (!keys.insert(key).second) fail(m.offset, m, "stands twice");
      try {
        out.emplace(key, tensor_of(m));
      } catch (const TypeNotRead&) {
        if (!wanted || wanted(key)) throw;
      }
    }
    return out;
  }

 private:
  [[noreturn]] void fail(std::uint64_t byte, const std::string& text) const { throw UserError(fmt::format("{}, byte {}: {}", name_, byte, text)); }
  [[noreturn]] void fail(std::uint64_t byte, const Member& m, const std::string& text) const {
    throw UserError(fmt::format("{}, byte {}, member '{}': {}", name_, byte, m.name, text));
  }

  template <class T>
  T get(std::uint64_t at) const {
    if (at > file_.size() || sizeof(T) > file_.size() - at) fail(at, "the archive is cut short");
    T out;
    std::memcpy(&out, file_.data() + at, sizeof out);
    return out;
  }
  std::string text(std::uint64_t at, std::size_t n) const {
    if (at > file_.size() || n > file_.size() - at) fail(at, "the archive is cut short");
    return {reinterpret_cast<const char*>(file_.data()) + at, n};
  }

  std::uint64_t find_end() const {
    if (file_.size() >= kEndBytes) {
      std::uint64_t last = file_.size() - kEndBytes;
      for (std::uint64_t at = last; at + 65535 >= last; --at) {
        if (get<std::uint32_t>(at) == kEnd && get<std::uint16_t>(at + 20) == last - at) return at;
        if (at == 0) break;
      }
    }
    fail(file_.size(), "is no .npz file: the archive has no end record, or bytes after it");
  }

  /// The directory's place, as the end record says it or, where there is one, that of zip64 before it; gives the number of entries.
  std::uint64_t find_directory() {
    std::uint64_t end = find_end(), count = get<std::uint16_t>(end + 10), bytes = get<std::uint32_t>(end + 12);
    directory_ = get<std::uint32_t>(end + 16);
    bool volumes = get<std::uint16_t>(end + 4) != 0 || get<std::uint16_t>(end + 6) != 0 || get<std::uint16_t>(end + 8) != count;
    if (end >= kLocator64Bytes && get<std::uint32_t>(end - kLocator64Bytes) == kLocator64) {
      end = get<std::uint64_t>(end - kLocator64Bytes + 8);
      if (get<std::uint32_t>(end) != kEnd64) fail(end, "no zip64 end record here");
      count = get<std::uint64_t>(end + 32), bytes = get<std::uint64_t>(end + 40), directory_ = get<std::uint64_t>(end + 48);
      volumes = get<std::uint32_t>(end + 16) != 0 || get<std::uint32_t>(end + 20) != 0 || get<std::uint64_t>(end + 24) != count;
    } else if (!volumes && (count == 0xffff || bytes == kWide || directory_ == kWide)) {
      fail(end, "a zip64 archive without its zip64 end record: it is damaged; copy or save it anew");
    }
    if (volumes) fail(end + 4, "an archive in several volumes");
    if (directory_ > end || bytes != end - directory_) fail(end, fmt::format("the directory of {} bytes at {} does not end at the end record at {}", bytes, directory_, end));
    directory_end_ = end;
    return count;
  }

  std::vector<Member> read_directory() {
    const std::uint64_t count = find_directory();
    std::vector<Member> out;
    std::uint64_t at = directory_;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (get<std::uint32_t>(at) != kCentral) fail(at, "no directory entry here");
      Member m{.name = text(at + kCentralBytes, get<std::uint16_t>(at + 28)), .flags = get<std::uint16_t>(at + 8), .method = get<std::uint16_t>(at + 10), .crc = get<std::uint32_t>(at + 16),
               .packed = get<std::uint32_t>(at + 20), .size = get<std::uint32_t>(at + 24), .offset = get<std::uint32_t>(at + 42)};
      read_wide(m, at + kCentralBytes + m.name.size(), get<std::uint16_t>(at + 30));
      check(m, at);
      if (m.offset >= directory_) fail(at + 42, m, "lies after the directory");
      at += kCentralBytes + m.name.size() + get<std::uint16_t>(at + 30) + get<std::uint16_t>(at + 32);
      out.push_back(std::move(m));
    }
    if (at != directory_end_) fail(at, fmt::format("the directory's {} entries end here, not at {}", count, directory_end_));
    return out;
  }

  /// What does not fit into a directory's entry stands in its zip64 field, in this order.
  void read_wide(Member& m, std::uint64_t at, std::uint64_t bytes) const {
    if (m.size != kWide && m.packed != kWide && m.offset != kWide) return;
    for (const std::uint64_t past = at + bytes; at + 4 <= past;) {
      const auto field = get<std::uint16_t>(at);
      const std::uint64_t end = at + 4 + get<std::uint16_t>(at + 2);
      at += 4;
      if (field != kField64) {
        at = end;
        continue;
      }
      for (std::uint64_t* value : {&m.size, &m.packed, &m.offset}) {
        if (*value != kWide) continue;
        if (at + 8 > end) fail(at, m, "its zip64 field is cut short");
        *value = get<std::uint64_t>(at);
        at += 8;
      }
      return;
    }
    fail(at, m, "is a zip64 member without its zip64 field: the archive is damaged; copy or save it anew");
  }

  void check(const Member& m, std::uint64_t at) const {
    if (!m.name.ends_with(kNpyEnding)) fail(at, m, "is no .npy; a .npz holds nothing else");
    if (m.flags & 1) fail(at + 8, m, "is encrypted");
    if (m.method != kStored && m.method != kDeflated) fail(at + 10, m, fmt::format("is packed by {}; stored and deflated members are read: write it with np.savez or np.savez_compressed", method_name(m.method)));
    if (m.method == kStored && m.packed != m.size) fail(at + 20, m, fmt::format("is stored, but {} bytes become {}", m.packed, m.size));
    if (m.size && (m.size - 1) / kMostPerByte >= m.packed) fail(at + 24, m, fmt::format("cannot grow from {} bytes to {}", m.packed, m.size));
  }

  void read_local(Member& m) const {
    if (get<std::uint32_t>(m.offset) != kLocal) fail(m.offset, m, "no local header here");
    if (text(m.offset + kLocalBytes, get<std::uint16_t>(m.offset + 26)) != m.name) fail(m.offset + kLocalBytes, m, "has another name in its local header");
    if (get<std::uint16_t>(m.offset + 8) != m.method) fail(m.offset + 8, m, "has another method in its local header");
    m.begin = m.offset + kLocalBytes + m.name.size() + get<std::uint16_t>(m.offset + 28);
    if (m.begin > directory_ || m.packed > directory_ - m.begin) fail(m.offset, m, fmt::format("its {} bytes run into the directory at {}", m.packed, directory_));
  }

  HostTensor tensor_of(const Member& m) const {
    std::span<const std::byte> packed = file_.subspan(m.begin, m.packed), bytes = packed;
    std::vector<std::byte> unpacked;
    if (m.method == kDeflated) {
      unpacked = inflated(m, packed);
      bytes = unpacked;
    }
    if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != m.crc) fail(m.begin, m, "its checksum differs: the file is damaged");
    return parse_npy(bytes, fmt::format("{}, member '{}'", name_, m.name));
  }

  std::vector<std::byte> inflated(const Member& m, std::span<const std::byte> packed) const {
    // One byte more than promised, so that a longer stream is seen.
    std::vector<std::byte> out(m.size + 1);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw InternalError("zlib does not start");
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    std::size_t left = packed.size(), room = out.size();
    auto refill = [](uInt& count, std::size_t& from) {  // zlib counts in 32 bits
      if (count) return;
      count = static_cast<uInt>(std::min<std::size_t>(from, std::numeric_limits<uInt>::max()));
      from -= count;
    };
    int status = Z_OK;
    while (status == Z_OK) {
      refill(stream.avail_in, left);
      refill(stream.avail_out, room);
      status = ::inflate(&stream, Z_NO_FLUSH);
    }
    left += stream.avail_in;
    const std::size_t made = stream.total_out;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || left != 0 || made != m.size)
      fail(m.begin + packed.size() - left, m, fmt::format("its deflated bytes are damaged: {} of {} bytes came out, {} stayed unread", made, m.size, left));
    out.resize(m.size);
    return out;
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  std::uint64_t directory_ = 0, directory_end_ = 0;
};

template <class T>
void put(std::vector<std::byte>& out, T value) {
  auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}
void put_text(std::vector<std::byte>& out, std::string_view text) {
  auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// What the local header and the directory entry have in common: version to flags, method, date, checksum, sizes, lengths of name and extra field.
void put_common(std::vector<std::byte>& out, const Member& m) {
  constexpr std::uint16_t kVersion = 20, kUtf8 = 1 << 11, kMidnight = 0, kFirstDay = 1 << 5 | 1;
  for (std::uint16_t v : {kVersion, kUtf8, m.method, kMidnight, kFirstDay}) put(out, v);
  for (std::uint64_t v : {std::uint64_t{m.crc}, m.packed, m.size}) put(out, static_cast<std::uint32_t>(v));
  put(out, static_cast<std::uint16_t>(m.name.size()));
  put(out, std::uint16_t{0});
}

/// The archive's parts, one after the other; those of tensors lie where they are.
struct Archive {
  std::vector<std::vector<std::byte>> heads;  ///< that parts view
  std::vector<std::span<const std::byte>> parts;
  std::size_t bytes = 0;

  void add(std::span<const std::byte> part) {
    parts.push_back(part);
    bytes += part.size();
  }
  void add(std::vector<std::byte>&& head) { add(heads.emplace_back(std::move(head))); }
};

std::uint32_t crc_of(std::initializer_list<std::span<const std::byte>> parts) {
  uLong out = 0;
  for (std::span<const std::byte> part : parts)
    if (!part.empty()) out = crc32_z(out, reinterpret_cast<const Bytef*>(part.data()), part.size());
  return static_cast<std::uint32_t>(out);
}

Archive archive_of(const TensorMap& tensors) {
  Archive out;
  std::vector<std::byte> directory;
  std::size_t total = kEndBytes;
  for (const auto& [name, tensor] : tensors) total += tensor.bytes().size() + 2 * name.size() + 512;
  if (total >= kWide || tensors.size() >= 0xffff) throw UserError(fmt::format("[npz] {} tensors of {} bytes do not fit into a plain zip archive; write safetensors", tensors.size(), total));
  for (const auto& [name, tensor] : tensors) {
    if (name.size() > 60000) throw UserError(fmt::format("[npz] a name of {} characters is too long for a zip member", name.size()));
    const std::string npy = npy_head(tensor);
    Member m{.name = name + std::string(kNpyEnding), .crc = crc_of({std::as_bytes(std::span(npy)), tensor.bytes()}), .offset = out.bytes};
    m.packed = m.size = npy.size() + tensor.bytes().size();
    std::vector<std::byte> head;
    put(head, kLocal);
    put_common(head, m);
    put_text(head, m.name);
    put_text(head, npy);
    out.add(std::move(head));
    out.add(tensor.bytes());

    put(directory, kCentral);
    put(directory, std::uint16_t{20});
    put_common(directory, m);
    for (int i = 0; i < 3; ++i) put(directory, std::uint16_t{0});  // comment, volume, inner attributes
    put(directory, std::uint32_t{0});                              // outer attributes
    put(directory, static_cast<std::uint32_t>(m.offset));
    put_text(directory, m.name);
  }
  const auto start = static_cast<std::uint32_t>(out.bytes), bytes = static_cast<std::uint32_t>(directory.size());
  const auto count = static_cast<std::uint16_t>(tensors.size());
  put(directory, kEnd);
  for (std::uint16_t v : {std::uint16_t{0}, std::uint16_t{0}, count, count}) put(directory, v);
  for (std::uint32_t v : {bytes, start}) put(directory, v);
  put(directory, std::uint16_t{0});
  out.add(std::move(directory));
  return out;
}

}  // namespace

TensorMap parse_npz(std::span<const std::byte> bytes, const std::string& name, const Wanted& wanted) { return NpzReader(bytes, name).read(wanted); }

TensorMap read_npz(const std::filesystem::path& path, const Wanted& wanted) {
  MappedFile file(path);
  return parse_npz(file.bytes(), path.string(), wanted);
}

std::vector<std::byte> npz_bytes(const TensorMap& tensors) {
  const Archive archive = archive_of(tensors);
  std::vector<std::byte> out;
  out.reserve(archive.bytes);
  for (std::span<const std::byte> part : archive.parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

void write_npz(const std::filesystem::path& path, const TensorMap& tensors) { write_file(path, archive_of(tensors).parts); }

}  // namespace belfry
