#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include <boost/crc.hpp>
#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/train/tensorboard_internal.h>

namespace belfry {
namespace {

using Crc32c = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;

std::uint32_t masked_crc(std::string_view bytes) {
  Crc32c crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const auto c = static_cast<std::uint32_t>(crc.checksum());
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The few forms of protocol buffers that events have. A key is the field's number and how its value is written.
enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out += static_cast<char>(value);
}
std::string key(std::uint64_t field, Wire wire) { return varint(field << 3 | wire); }
std::string bytes_field(std::uint64_t field, std::string_view bytes) { return key(field, kBytes) + varint(bytes.size()).append(bytes); }

// Event, Summary, Summary.Value and SessionLog of tensorboard/compat/proto/event.proto and summary.proto.
std::string event_of(std::int64_t step, const std::string& what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, kFixed64) + little_endian(now) + key(2, kVarint) + varint(static_cast<std::uint64_t>(step)) + what;
}
std::string file_version() { return bytes_field(3, "brain.Event:2"); }
std::string session_start() { return bytes_field(7, key(1, kVarint) + varint(1)); }
std::string scalar_value(const std::string& tag, double value) { return bytes_field(1, bytes_field(1, tag) + key(2, kFixed32) + little_endian(static_cast<float>(value))); }

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::string scalar_tag(const std::string& name) {
  constexpr std::string_view tower = "tower_";
  const std::size_t slash = name.find('/');
  if (!name.starts_with(tower) || slash == std::string::npos || slash == tower.size()) return name;
  const bool number = std::all_of(name.begin() + tower.size(), name.begin() + static_cast<std::ptrdiff_t>(slash), [](unsigned char c) { return std::isdigit(c); });
  return number ? name.substr(slash + 1) : name;
}

ScalarEvents::ScalarEvents(const std::filesystem::path& folder, std::int64_t before, Notice notice) : folder_(folder), notice_(std::move(notice)) {
  begin(before);
}

void ScalarEvents::begin(std::int64_t before) {
  make_folder(folder_);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, host_name(), ::getpid());
  path_ = folder_ / name;
  for (int k = 1; std::filesystem::exists(path_); ++k) path_ = folder_ / fmt::format("{}.{}", name, k);
  if (!file_.open(path_)) throw UserError(fmt::format("{}: the event file cannot be opened for writing: {}; name another folder for it", path_.string(), std::strerror(errno)));
  write(event_of(0, file_version()));
  write(event_of(before + 1, session_start()));
}

void ScalarEvents::add(std::int64_t step, const Metrics& scalars) {
  std::string values;
  for (const auto& [name, value] : scalars) values += scalar_value(scalar_tag(name), value);
  if (values.empty()) return;
  if (file_.gone()) {
    const std::string lost = path_.string();
    begin(step - 1);
    if (notice_) notice_(fmt::format("{}: the event file was removed while training, and its points until here with it; {} goes on", lost, path_.string()));
  }
  write(event_of(step, bytes_field(5, values)));
}

void ScalarEvents::write(const std::string& event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  if (!file_.write(length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event)))) throw UserError(fmt::format("{}: the event file could not be written; its disk may be full", path_.string()));
}

void TensorBoardLog::epoch(std::int64_t step, const Metrics& metrics, const Metrics& rates) {
  constexpr std::string_view held_out = "val_";
  Metrics scalars;
  for (const auto& [name, value] : metrics)
    if (name.starts_with(held_out)) scalars[name.substr(held_out.size())] = value;
  validation_.add(step, scalars);
  train_.add(step, rates);
}

}  // namespace belfry
