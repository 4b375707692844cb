#include <belfry/frontends/state/safetensors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/state/whole_numbers_internal.h>

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

using nlohmann::json;

constexpr std::uint64_t kHeaderLimit = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kSafetensorsAlignment = 64;
constexpr const char* kMetadataKey = "__metadata__";

struct SafetensorsCode {
  std::string_view text;
  DType dtype;
};
constexpr SafetensorsCode kSafetensorsCodes[] = {{"F32", f32}, {"F64", f64}, {"I32", i32}, {"I64", i64}, {"U8", u8}, {"BOOL", boolean}, {"F16", f16}, {"BF16", bf16}};

std::string_view code_of(DType dtype) {
  return std::find_if(std::begin(kSafetensorsCodes), std::end(kSafetensorsCodes), [&](const SafetensorsCode& c) { return c.dtype == dtype; })->text;
}

/// Walks the header and leaves behind where the JSON parser stands.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** seen;
  reference operator*() const { return *(*seen = at); }
  Cursor& operator++() { return ++at, *this; }
  bool operator==(const Cursor& other) const { return at == other.at; }
};

struct Entry {
  std::string name;
  LocalType type;
  std::uint64_t begin = 0, end = 0;      ///< in the buffer after the header
  std::uint64_t where = 0;               ///< the byte of its name in the file
  const WholeNumbers* narrow = nullptr;  ///< what the file has, where that is read as i64
  std::string not_read = {};             ///< a code of no type here
};

class SafetensorsReader {
 public:
  SafetensorsReader(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  TensorMap read(TextMap* metadata, const Wanted& wanted) {
    split_header();
    json header = parse_header();
    std::vector<Entry> entries;
    TextMap texts;
    for (const auto& [key, value] : header.items()) {
      if (key == kMetadataKey) read_metadata(value, texts);
      else entries.push_back(entry_of(key, value));
    }
    check_coverage(entries);
    TensorMap out;
    for (const Entry& e : entries) {
      if (e.not_read.empty()) out.emplace(e.name, tensor_of(e));
      else if (!wanted || wanted(e.name))
        throw TypeNotRead(fmt::format("{}, byte {}, tensor '{}': dtype {} is not read here; F32, F64, F16, BF16, BOOL and whole numbers are: convert it where the file was written", name_, e.where, e.name, e.not_read));
    }
    check_sum(out, texts);
    texts.erase(kChecksumKey);  // of this content alone: beside another it would refuse the file
    if (metadata)
      for (auto& [key, text] : texts) (*metadata)[key] = std::move(text);
    return out;
  }

 private:
  [[noreturn]] void fail(std::uint64_t byte, const std::string& text) const { throw UserError(fmt::format("{}, byte {}: {}", name_, byte, text)); }
  [[noreturn]] void fail(const Entry& e, const std::string& text) const { throw UserError(fmt::format("{}, byte {}, tensor '{}': {}", name_, e.where, e.name, text)); }

  void split_header() {
    if (file_.size() < kLengthBytes) fail(0, fmt::format("{} bytes are too few for a safetensors file, which begins with the length of its header in 8 bytes", file_.size()));
    if (std::memcmp(file_.data(), "PK\3\4", 4) == 0) fail(0, "a zip: torch.save's files are not read; safetensors.torch.save_file writes one that is (arrays of numpy's are read where the name ends with .npz)");
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), sizeof length);
    if (length > kHeaderLimit) fail(0, fmt::format("a header of {} bytes is over the limit of {}; is this a safetensors file?", length, kHeaderLimit));
    if (length > file_.size() - kLengthBytes) fail(0, fmt::format("a header of {} bytes does not fit into a file of {}: it is cut short", length, file_.size()));
    header_ = {reinterpret_cast<const char*>(file_.data()) + kLengthBytes, static_cast<std::size_t>(length)};
    buffer_ = file_.subspan(kLengthBytes + static_cast<std::size_t>(length));
    if (header_.empty() || header_[0] != '{') fail(kLengthBytes, "the header does not begin with '{'");
    // The JSON parser takes NUL for the end of its input.
    if (std::size_t nul = header_.find('\0'); nul != std::string_view::npos) fail(kLengthBytes + nul, "a NUL byte in the header");
  }

  json parse_header() {
    const char* seen = header_.data();
    auto here = [&] { return kLengthBytes + static_cast<std::uint64_t>(seen - header_.data()); };
    std::array<std::set<std::string>, 4> keys;
    auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
      using Event = json::parse_event_t;
      if (event == Event::object_start || event == Event::array_start) {
        if (depth > 2) fail(here(), "the header is nested deeper than a tensor's shape");
        keys[static_cast<std::size_t>(depth) + 1].clear();
      } else if (event == Event::key) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys[static_cast<std::size_t>(depth)].insert(key).second) fail(here(), fmt::format("'{}' stands twice", key));
        if (depth == 1) where_[key] = here() - key.size();
      }
      return true;
    };
    try {
      return json::parse(Cursor{header_.data(), &seen}, Cursor{header_.data() + header_.size(), &seen}, watch);
    } catch (const json::exception& e) {
      std::string_view text = e.what();
      std::size_t from = text.find("syntax error");
      fail(here(), fmt::format("the header is no JSON: {}", from == std::string_view::npos ? text : text.substr(from)));
    }
  }

  void read_metadata(const json& value, TextMap& out) const {
    std::uint64_t where = where_.at(kMetadataKey);
    if (!value.is_object()) fail(where, "__metadata__ is no object of texts");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(where, fmt::format("__metadata__ '{}' is {}, not a text", key, text.type_name()));
      out[key] = text.get<std::string>();
    }
  }

  void check_sum(const TensorMap& tensors, const TextMap& texts) const {
    const auto written = texts.find(kChecksumKey);
    if (written == texts.end()) return;
    if (const std::string found = checksum_of(tensors, texts); found != written->second)
      fail(where_.at(kMetadataKey), fmt::format("the file is damaged: its content has the checksum {}, and was written with {}; take an earlier checkpoint or another copy (who changed it on purpose removes '{}' from its metadata)", found, written->second, kChecksumKey));
  }

  Entry entry_of(const std::string& name, const json& value) const {
    Entry e{.name = name, .type = {}, .where = where_.at(name)};
    if (!value.is_object()) fail(e, fmt::format("is {}, not an object of dtype, shape and data_offsets", value.type_name()));
    for (const auto& [key, ignored] : value.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets") fail(e, fmt::format("unknown key '{}'; known are dtype, shape, data_offsets", key));
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!value.contains(key)) fail(e, fmt::format("has no '{}'", key));

    if (!value["dtype"].is_string()) fail(e, "dtype is no text");
    const auto& code = value["dtype"].get_ref<const std::string&>();
    auto known = std::find_if(std::begin(kSafetensorsCodes), std::end(kSafetensorsCodes), [&](const SafetensorsCode& c) { return c.text == code; });
    auto narrow = std::find_if(std::begin(kWholeNumbers), std::end(kWholeNumbers), [&](const WholeNumbers& n) { return n.safetensors == code; });
    if (narrow != std::end(kWholeNumbers)) e.narrow = narrow;
    else if (known == std::end(kSafetensorsCodes)) e.not_read = code;
    e.type.dtype = known != std::end(kSafetensorsCodes) ? known->dtype : i64;

    std::vector<std::uint64_t> offsets = counts(e, value, "data_offsets");
    if (offsets.size() != 2) fail(e, fmt::format("data_offsets has {} members, not 2", offsets.size()));
    e.begin = offsets[0];
    e.end = offsets[1];
    if (e.begin > e.end || e.end > buffer_.size()) fail(e, fmt::format("data_offsets [{}, {}] do not lie in the {} bytes after the header", e.begin, e.end, buffer_.size()));

    std::uint64_t bytes = e.narrow ? e.narrow->bytes : size_of(e.type.dtype);
    const std::vector<std::uint64_t> shape = counts(e, value, "shape");
    if (!e.not_read.empty()) return e;
    for (std::uint64_t n : shape) {
      if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) || __builtin_mul_overflow(bytes, n, &bytes) ||
          bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(e, fmt::format("the shape {} has more than 2^63 bytes", value["shape"].dump()));
      e.type.shape.push_back(static_cast<std::int64_t>(n));
    }
    if (bytes != e.end - e.begin) fail(e, fmt::format("{} takes {} bytes, but data_offsets [{}, {}] hold {}", to_string(e.type), bytes, e.begin, e.end, e.end - e.begin));
    return e;
  }

  std::vector<std::uint64_t> counts(const Entry& e, const json& value, const char* key) const {
    const json& list = value[key];
    if (!list.is_array()) fail(e, fmt::format("{} is {}, not an array", key, list.type_name()));
    std::vector<std::uint64_t> out;
    for (const json& n : list) {
      if (!n.is_number_unsigned()) fail(e, fmt::format("{} holds {}, not an integer of 0 to 2^64 - 1", key, n.dump()));
      out.push_back(n.get<std::uint64_t>());
    }
    return out;
  }

  /// Every byte of the buffer belongs to one tensor.
  void check_coverage(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    std::uint64_t reached = 0;
    std::string before;
    for (const Entry& e : entries) {
      if (e.begin < reached) fail(e, fmt::format("data_offsets [{}, {}] overlap those of '{}', which end at {}", e.begin, e.end, before, reached));
      if (e.begin > reached) fail(e, fmt::format("data_offsets [{}, {}] leave a hole from {}", e.begin, e.end, reached));
      reached = e.end;
      before = e.name;
    }
    if (reached != buffer_.size()) fail(file_.size() - (buffer_.size() - reached), fmt::format("{} bytes after the last tensor", buffer_.size() - reached));
  }

  HostTensor tensor_of(const Entry& e) const {
    std::span<const std::byte> from = buffer_.subspan(e.begin, e.end - e.begin);
    if (e.type.dtype == boolean) {
      auto bad = std::find_if(from.begin(), from.end(), [](std::byte b) { return b > std::byte{1}; });
      if (bad != from.end())
        throw UserError(fmt::format("{}, byte {}, tensor '{}': {} is no BOOL; 0 and 1 are", name_, &*bad - file_.data(), e.name, std::to_integer<int>(*bad)));
    }
    HostTensor out(e.type.dtype, e.type.shape);
    if (e.narrow) {
      const std::span<std::int64_t> values = out.data<std::int64_t>();
      e.narrow->widen(from, values);
      if (const std::size_t i = first_too_large(*e.narrow, values); i < values.size())
        throw UserError(fmt::format("{}, tensor '{}': element {} is {}, which i64 does not hold; convert it where the file was written", name_, e.name, i, static_cast<std::uint64_t>(values[i])));
    } else if (!from.empty()) std::memcpy(out.raw(), from.data(), from.size());
    return out;
  }

  std::span<const std::byte> file_, buffer_;
  std::string_view header_;
  const std::string& name_;
  std::map<std::string, std::uint64_t> where_;
};

std::string quoted(const std::string& text) {
  if (auto out = json_quoted(text)) return *std::move(out);
  throw UserError(fmt::format("[safetensors] the name or text '{}' is no UTF-8, as the format's are: write another", printable(text)));
}

using Ordered = std::vector<std::pair<const std::string*, const HostTensor*>>;

Ordered file_order(const TensorMap& tensors) {
  Ordered out;
  for (const auto& [name, tensor] : tensors) out.emplace_back(&name, &tensor);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return size_of(a.second->dtype()) > size_of(b.second->dtype()); });
  return out;
}

/// The length and the padded header.
std::string head_of(const Ordered& tensors, const TextMap& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, text] : metadata) header += fmt::format("{}{}:{}", key == metadata.begin()->first ? "" : ",", quoted(key), quoted(text));
    header += '}';
  }
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    if (*name == kMetadataKey) throw UserError(fmt::format("[safetensors] a tensor cannot be named '{}': the format keeps that name for texts", kMetadataKey));
    std::size_t size = tensor->bytes().size();
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "", quoted(*name), code_of(tensor->dtype()),
                          fmt::join(tensor->shape(), ","), at, at + size);
    at += size;
  }
  header += '}';
  header.append((kSafetensorsAlignment - (kLengthBytes + header.size()) % kSafetensorsAlignment) % kSafetensorsAlignment, ' ');
  if (header.size() > kHeaderLimit) throw UserError(fmt::format("[safetensors] a header of {} bytes is over the limit of {}; write fewer tensors a file", header.size(), kHeaderLimit));
  std::uint64_t length = header.size();
  std::string head(kLengthBytes, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  return head + header;
}

}  // namespace

std::string checksum_of(const TensorMap& tensors, const TextMap& metadata) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  auto add = [&](const std::string& text) { XXH3_128bits_update(state, text.data(), text.size()); };
  for (const auto& [key, text] : metadata)
    if (key != kChecksumKey) add(fmt::format("{} {} {} {} ", key.size(), key, text.size(), text));
  for (const auto& [name, t] : tensors) {
    add(fmt::format("{} {} {} {} ", name.size(), name, code_of(t.dtype()), fmt::join(t.shape(), ",")));
    XXH3_128bits_update(state, t.bytes().data(), t.bytes().size());
  }
  const XXH128_hash_t out = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", out.high64, out.low64);
}

TensorMap parse_safetensors(std::span<const std::byte> bytes, const std::string& name, TextMap* metadata, const Wanted& wanted) { return SafetensorsReader(bytes, name).read(metadata, wanted); }

TensorMap read_safetensors(const std::filesystem::path& path, TextMap* metadata, const Wanted& wanted) {
  MappedFile file(path);
  return parse_safetensors(file.bytes(), path.string(), metadata, wanted);
}

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const TextMap& metadata) {
  Ordered order = file_order(tensors);
  std::string head = head_of(order, metadata);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(head))};
  for (const auto& [name, tensor] : order) parts.push_back(tensor->bytes());
  write_file(path, parts);
}

std::vector<std::byte> safetensors_bytes(const TensorMap& tensors, const TextMap& metadata) {
  Ordered order = file_order(tensors);
  std::string head = head_of(order, metadata);
  auto head_bytes = std::as_bytes(std::span(head));
  std::vector<std::byte> out(head_bytes.begin(), head_bytes.end());
  for (const auto& [name, tensor] : order) out.insert(out.end(), tensor->bytes().begin(), tensor->bytes().end());
  return out;
}

}  // namespace belfry
