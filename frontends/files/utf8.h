// Text in files is UTF-8: what can be written there, and how what cannot is shown.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace belfry {

/// As JSON quotes it; nothing for bytes that are no UTF-8.
std::optional<std::string> json_quoted(std::string_view text);

/// The text itself; of bytes that are no UTF-8 those beyond ASCII in hex, each behind a backslash and an x.
std::string printable(std::string_view text);

/// The same for a terminal, which obeys control characters: in hex too, but those that are `kept`.
std::string shown(std::string_view text, std::string_view kept = "");

}  // namespace belfry
