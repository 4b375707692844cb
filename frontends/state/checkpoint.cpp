#include <belfry/frontends/state/checkpoint.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>

namespace belfry {
namespace {

constexpr const char* kVersionKey = "belfry.checkpoint";
constexpr const char* kVersion = "1";
constexpr std::string_view kPrefix = "step-", kEnding = ".safetensors", kRun = "run/";

template <class T>
bool parse_number(std::string_view text, T& out) {
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc{} && end == text.data() + text.size() && out >= T{0};
}

template <class T>
T number(const std::filesystem::path& path, const TextMap& metadata, const std::string& key) {
  auto it = metadata.find(key);
  T out{};
  if (it == metadata.end()) throw UserError(fmt::format("{}: the checkpoint has no '{}'", path.string(), key));
  if (!parse_number(it->second, out)) throw UserError(fmt::format("{}: the checkpoint's {} is '{}', not a count", path.string(), key, it->second));
  return out;
}

TextMap notes_in(const TextMap& metadata) {
  TextMap out;
  for (const auto& [key, value] : metadata)
    if (key.starts_with(kRun)) out[key.substr(kRun.size())] = value;
  return out;
}

struct Found {
  std::int64_t step = 0;
  bool whole = false;
  std::filesystem::path path;
};

std::optional<Found> found(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t ending = name.find(kEnding);
  Found f{.path = path};
  if (!name.starts_with(kPrefix) || ending == std::string::npos) return {};
  if (!parse_number(std::string_view(name).substr(kPrefix.size(), ending - kPrefix.size()), f.step)) return {};
  const std::string_view rest = std::string_view(name).substr(ending + kEnding.size());
  f.whole = rest.empty();
  if (!f.whole && !rest.starts_with(kPartialSuffix)) return {};
  return f;
}

/// Files of the folder that are named as checkpoints, by rising step.
std::vector<Found> checkpoints_in(const std::filesystem::path& dir) {
  std::vector<Found> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (std::optional<Found> f = found(it->path())) out.push_back(std::move(*f));
  std::sort(out.begin(), out.end(), [](const Found& a, const Found& b) { return std::tie(a.step, a.path) < std::tie(b.step, b.path); });
  return out;
}

}  // namespace

TextMap checkpoint_notes(const std::filesystem::path& path) {
  TextMap metadata;
  read_safetensors(path, &metadata);
  return metadata.contains(kVersionKey) ? notes_in(metadata) : TextMap();
}

void write_checkpoint(const std::filesystem::path& path, const CheckpointData& data) {
  if (data.step < 0 || data.epoch < 0 || data.position < 0)
    throw UserError(fmt::format("{}: a checkpoint of step {}, epoch {}, position {}: none may be negative", path.string(), data.step, data.epoch, data.position));
  TextMap metadata = {{kVersionKey, kVersion}, {"step", std::to_string(data.step)}, {"epoch", std::to_string(data.epoch)},
                      {"position", std::to_string(data.position)}, {"seed", std::to_string(data.seed)}, {"note", data.note}};
  for (const auto& [key, value] : data.run) metadata[std::string(kRun) + key] = value;
  metadata[kChecksumKey] = checksum_of(data.state, metadata);
  write_safetensors(path, data.state, metadata);
}

CheckpointData read_checkpoint(const std::filesystem::path& path) {
  CheckpointData out;
  TextMap metadata;
  out.state = read_safetensors(path, &metadata);
  auto version = metadata.find(kVersionKey);
  if (version == metadata.end()) throw UserError(fmt::format("{}: holds tensors, but is no checkpoint: its metadata lack '{}'; load it as weights", path.string(), kVersionKey));
  if (version->second != kVersion) throw UserError(fmt::format("{}: a checkpoint of version '{}'; this program reads version {}", path.string(), version->second, kVersion));
  out.step = number<std::int64_t>(path, metadata, "step");
  out.epoch = number<std::int64_t>(path, metadata, "epoch");
  out.position = number<std::int64_t>(path, metadata, "position");
  out.seed = number<std::uint64_t>(path, metadata, "seed");
  out.note = metadata["note"];
  out.run = notes_in(metadata);
  return out;
}

std::filesystem::path checkpoint_path(const std::filesystem::path& dir, std::int64_t step) { return dir / fmt::format("{}{:08}{}", kPrefix, step, kEnding); }

bool is_named_as_checkpoint(const std::filesystem::path& path) { return found(path).has_value(); }

std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir, std::int64_t before) {
  std::optional<std::filesystem::path> out;
  for (Found& f : checkpoints_in(dir))
    if (f.whole && f.step < before) out = std::move(f.path);
  return out;
}

std::int64_t latest_checkpoint_step(const std::filesystem::path& dir) {
  std::int64_t out = -1;
  for (const Found& f : checkpoints_in(dir))
    if (f.whole) out = f.step;
  return out;
}

void keep_last(const std::filesystem::path& dir, int k) {
  if (k < 1) throw UserError(fmt::format("keep_last: {} checkpoints cannot be kept; 1 is the least", k));
  std::vector<Found> found = checkpoints_in(dir);
  const std::int64_t newest = latest_checkpoint_step(dir);
  auto whole = std::count_if(found.begin(), found.end(), [](const Found& f) { return f.whole; });
  for (const Found& f : found) {
    bool remove = f.whole ? whole > k : f.step <= newest;
    if (f.whole && remove) --whole;
    std::error_code error;
    if (remove && (std::filesystem::remove(f.path, error), error)) throw UserError(fmt::format("{}: cannot remove: {}", f.path.string(), error.message()));
  }
}

}  // namespace belfry
