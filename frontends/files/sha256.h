// SHA-256 of bytes, for files that are fetched.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace belfry {

/// In hexadecimal digits (FIPS 180-4).
std::string sha256(std::span<const std::byte> bytes);

}  // namespace belfry
