// Text as bytes, for language models.
#pragma once

#include <filesystem>

#include <belfry/frontends/data/data_set.h>

namespace belfry {

/// All *.txt of a folder, sorted by name, one behind the other, cut into windows of `length` bytes: "tokens" i32 (n, length), and "targets", the byte
/// that follows each of them. The last tenth is held out. UserError where there are fewer than 20 windows.
Splits text_windows(const std::filesystem::path& dir, std::int64_t length);

}  // namespace belfry
