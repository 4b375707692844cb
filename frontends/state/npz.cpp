#include <zlib.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/npy.h>

namespace belfry {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::uint32_t kWide = 0xffffffff;  ///< the size stands in a zip64 field
constexpr std::uint64_t kMostPerByte = 1032;  ///< no deflated byte gives more
constexpr std::string_view kNpyEnding = ".npy";

struct Member {
  std::string name;  ///< with its ending
  std::uint16_t flags = 0, method = 0;
  std::uint32_t crc = 0, packed = 0, size = 0, offset = 0;
  std::uint64_t begin = 0;  ///< of the data
};

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

  std::vector<Member> read_directory() {
    const std::uint64_t end = find_end();
    const auto count = get<std::uint16_t>(end + 10);
    const auto bytes = get<std::uint32_t>(end + 12), start = get<std::uint32_t>(end + 16);
    if (get<std::uint16_t>(end + 4) != 0 || get<std::uint16_t>(end + 6) != 0 || get<std::uint16_t>(end + 8) != count) fail(end + 4, "an archive in several volumes");
    if (count == 0xffff || bytes == kWide || start == kWide) fail(end, "a zip64 archive of over 4 GiB or 65,534 members; save it as safetensors");
    if (std::uint64_t{start} + bytes != end) fail(end + 16, fmt::format("the directory of {} bytes at {} does not end at the end record at {}", bytes, start, end));
    std::vector<Member> out;
    std::uint64_t at = start;
    for (int i = 0; i < count; ++i) {
      if (get<std::uint32_t>(at) != kCentral) fail(at, "no directory entry here");
      Member m{.name = text(at + kCentralBytes, get<std::uint16_t>(at + 28)), .flags = get<std::uint16_t>(at + 8), .method = get<std::uint16_t>(at + 10), .crc = get<std::uint32_t>(at + 16),
               .packed = get<std::uint32_t>(at + 20), .size = get<std::uint32_t>(at + 24), .offset = get<std::uint32_t>(at + 42)};
      check(m, at);
      if (m.offset >= start) fail(at + 42, m, "lies after the directory");
      at += kCentralBytes + m.name.size() + get<std::uint16_t>(at + 30) + get<std::uint16_t>(at + 32);
      out.push_back(std::move(m));
    }
    if (at != end) fail(at, fmt::format("the directory's {} entries end here, not at {}", count, end));
    directory_ = start;
    return out;
  }

  void check(const Member& m, std::uint64_t at) const {
    if (!m.name.ends_with(kNpyEnding)) fail(at, m, "is no .npy; a .npz holds nothing else");
    if (m.flags & 1) fail(at + 8, m, "is encrypted");
    if (m.method != 0 && m.method != 8) fail(at + 10, m, fmt::format("is packed by method {}; stored and deflated members are read", m.method));
    if (m.packed == kWide || m.size == kWide || m.offset == kWide) fail(at + 20, m, "is a zip64 member of over 4 GiB; save it as safetensors");
    if (m.method == 0 && m.packed != m.size) fail(at + 20, m, fmt::format("is stored, but {} bytes become {}", m.packed, m.size));
    if (m.size > m.packed * kMostPerByte) fail(at + 24, m, fmt::format("cannot grow from {} bytes to {}", m.packed, m.size));
  }

  void read_local(Member& m) const {
    if (get<std::uint32_t>(m.offset) != kLocal) fail(m.offset, m, "no local header here");
    if (text(m.offset + kLocalBytes, get<std::uint16_t>(m.offset + 26)) != m.name) fail(m.offset + kLocalBytes, m, "has another name in its local header");
    if (get<std::uint16_t>(m.offset + 8) != m.method) fail(m.offset + 8, m, "has another method in its local header");
    m.begin = std::uint64_t{m.offset} + kLocalBytes + m.name.size() + get<std::uint16_t>(m.offset + 28);
    if (m.begin + m.packed > directory_) fail(m.offset, m, fmt::format("its {} bytes run into the directory at {}", m.packed, directory_));
  }

  HostTensor tensor_of(const Member& m) const {
    std::span<const std::byte> packed = file_.subspan(m.begin, m.packed), bytes = packed;
    std::vector<std::byte> unpacked;
    if (m.method == 8) {
      unpacked = inflated(m, packed);
      bytes = unpacked;
    }
    if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != m.crc) fail(m.begin, m, "its checksum differs: the file is damaged");
    return parse_npy(bytes, fmt::format("{}, member '{}'", name_, m.name));
  }

  std::vector<std::byte> inflated(const Member& m, std::span<const std::byte> packed) const {
    // One byte more than promised, so that a longer stream is seen.
    std::vector<std::byte> out(std::size_t{m.size} + 1);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw InternalError("zlib does not start");
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    int status = ::inflate(&stream, Z_FINISH);
    std::size_t left = stream.avail_in, made = stream.total_out;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || left != 0 || made != m.size)
      fail(m.begin + packed.size() - left, m, fmt::format("its deflated bytes are damaged: {} of {} bytes came out, {} stayed unread", made, m.size, left));
    out.resize(m.size);
    return out;
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  std::uint64_t directory_ = 0;
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
  for (std::uint32_t v : {m.crc, m.packed, m.size}) put(out, v);
  put(out, static_cast<std::uint16_t>(m.name.size()));
  put(out, std::uint16_t{0});
}

}  // namespace

TensorMap parse_npz(std::span<const std::byte> bytes, const std::string& name, const Wanted& wanted) { return NpzReader(bytes, name).read(wanted); }

TensorMap read_npz(const std::filesystem::path& path, const Wanted& wanted) {
  MappedFile file(path);
  return parse_npz(file.bytes(), path.string(), wanted);
}

std::vector<std::byte> npz_bytes(const TensorMap& tensors) {
  std::vector<std::byte> out, directory;
  std::size_t total = kEndBytes;
  for (const auto& [name, tensor] : tensors) total += tensor.bytes().size() + 2 * name.size() + 512;
  if (total >= kWide || tensors.size() >= 0xffff) throw UserError(fmt::format("[npz] {} tensors of {} bytes do not fit into a plain zip archive; write safetensors", tensors.size(), total));
  for (const auto& [name, tensor] : tensors) {
    if (name.size() > 60000) throw UserError(fmt::format("[npz] a name of {} characters is too long for a zip member", name.size()));
    std::vector<std::byte> npy = npy_bytes(tensor);
    Member m{.name = name + std::string(kNpyEnding), .offset = static_cast<std::uint32_t>(out.size())};
    m.crc = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(npy.data()), npy.size()));
    m.packed = m.size = static_cast<std::uint32_t>(npy.size());
    put(out, kLocal);
    put_common(out, m);
    put_text(out, m.name);
    out.insert(out.end(), npy.begin(), npy.end());

    put(directory, kCentral);
    put(directory, std::uint16_t{20});
    put_common(directory, m);
    for (int i = 0; i < 3; ++i) put(directory, std::uint16_t{0});  // comment, volume, inner attributes
    put(directory, std::uint32_t{0});                              // outer attributes
    put(directory, m.offset);
    put_text(directory, m.name);
  }
  auto start = static_cast<std::uint32_t>(out.size());
  auto count = static_cast<std::uint16_t>(tensors.size());
  out.insert(out.end(), directory.begin(), directory.end());
  put(out, kEnd);
  for (std::uint16_t v : {std::uint16_t{0}, std::uint16_t{0}, count, count}) put(out, v);
  put(out, static_cast<std::uint32_t>(directory.size()));
  put(out, start);
  put(out, std::uint16_t{0});
  return out;
}

void write_npz(const std::filesystem::path& path, const TensorMap& tensors) { write_file(path, {npz_bytes(tensors)}); }

}  // namespace belfry
