// Patterns over names: of placement rules, and of variables that an option speaks of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace belfry {

/// ** is any text, * any text without '/', ? one character.
bool glob_matches(std::string_view pattern, std::string_view text);
/// "local3/weights, **/bias": patterns between commas, spaces around them left out.
std::vector<std::string> globs_of(std::string_view list);

}  // namespace belfry
