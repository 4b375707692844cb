// Numbers in the text of files.
#pragma once

namespace belfry {

/// As strtod reads it where the program has set no locale: a decimal comma is none of a file's. `end`: behind the number.
double real_at(const char* text, char** end = nullptr);

}  // namespace belfry
