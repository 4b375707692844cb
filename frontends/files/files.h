// Whole files: read with a limit, written beside and renamed, so that a file is never half there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace belfry {

/// UserError for a file that is absent, unreadable, no regular file, or longer than `limit`.
std::string read_file(const std::string& path, std::size_t limit = std::size_t{1} << 28);

/// The old file stays as it is until the new one is whole on the disk. UserError for a missing folder, missing rights, a full disk.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace belfry
