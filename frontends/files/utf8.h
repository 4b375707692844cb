// Text in files is UTF-8: what can be written there, and how what cannot is shown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

/// As JSON quotes it; nothing for bytes that are no UTF-8.
std::optional<std::string> json_quoted(std::string_view text);

/// The text itself; of bytes that are no UTF-8 those beyond ASCII in hex, each behind a backslash and an x.
std::string printable(std::string_view text);

/// The same for a terminal, which obeys control characters: in hex too, but those that are `kept`.
std::string shown(std::string_view text, std::string_view kept = "");

/// The same of the first `most` bytes, or fewer that are whole characters; what is left out is an ellipsis.
std::string shown_start(std::string_view text, std::size_t most);

/// Names as one of several in a line: their first 80 bytes, in quotes where there are commas, quotes or parentheses in them.
std::string listed(std::string_view name);
std::string listed(const std::vector<std::string>& names);

}  // namespace belfry
