#include <belfry/frontends/data/text.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>

namespace belfry {

namespace {

DataSet windows(std::string_view text, std::int64_t first, std::int64_t count, std::int64_t length) {
  DataSet out;
  for (int shift : {0, 1}) {
    HostTensor t(i32, {count, length});
    auto to = t.data<std::int32_t>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<unsigned char>(text[static_cast<std::size_t>(first * length) + i + static_cast<std::size_t>(shift)]);
    out.columns.emplace(shift ? "targets" : "tokens", std::move(t));
  }
  return out;
}

}  // namespace

Splits text_windows(const std::filesystem::path& dir, std::int64_t length) {
  if (length < 1) throw UserError(fmt::format("windows of {} bytes; they need at least 1", length));
  std::vector<std::filesystem::path> files;
  refuse_closed(dir);
  if (std::filesystem::is_regular_file(dir)) throw UserError(fmt::format("{}: is a file, and text is read from the *.txt of a folder: name that", dir.string()));
  std::error_code error;
  for (const auto& e : std::filesystem::directory_iterator(dir, error))
    if (e.path().extension() == ".txt") files.push_back(e.path());
  if (error) throw UserError(fmt::format("{}: cannot be listed: {}", dir.string(), error.message()));
  if (files.empty()) throw UserError(fmt::format("{}: no *.txt", dir.string()));
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& f : files) text += read_file(f);
  const std::int64_t count = (static_cast<std::int64_t>(text.size()) - 1) / length, held_out = std::max<std::int64_t>(1, count / 10);
  if (count < 20) throw UserError(fmt::format("{}: {} bytes of text make {} windows of {}; at least 20 are needed", dir.string(), text.size(), std::max<std::int64_t>(count, 0), length));
  return {windows(text, 0, count - held_out, length), windows(text, count - held_out, held_out, length)};
}

}  // namespace belfry
