#include <belfry/frontends/files/utf8.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace belfry {

std::optional<std::string> json_quoted(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return {};
  }
}

std::string printable(std::string_view text) {
  if (json_quoted(text)) return std::string(text);
  std::string out;
  for (char c : text) out += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string shown(std::string_view text, std::string_view kept) {
  std::string out;
  for (char c : printable(text)) out += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) && kept.find(c) == kept.npos ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  return out;
}

std::string shown_start(std::string_view text, std::size_t most) {
  if (text.size() <= most) return shown(text);
  std::size_t end = most;
  while (end > 0 && most - end < 3 && (text[end] & 0xC0) == 0x80) --end;  // of a character at most 3 bytes more
  return shown(text.substr(0, end)) + "…";
}

std::string listed(std::string_view name) {
  std::string start = shown_start(name, 80);
  if (start.find_first_of(",\"()") == start.npos) return start;
  std::string out = "\"";
  for (char c : start) out += c == '"' ? "\\\"" : std::string(1, c);
  return out + "\"";
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + listed(name);
  return out;
}

}  // namespace belfry
