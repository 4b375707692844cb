// Whether a shared library can be opened without harm: one that is cut short kills the process that opens it.
#pragma once

#include <string>

namespace belfry {

/// What is wrong with the file by its ELF header, "is cut short: …"; empty if nothing is, or if it is no ELF file, which the loader says itself, or a bare name.
std::string cut_short(const std::string& file);

}  // namespace belfry
