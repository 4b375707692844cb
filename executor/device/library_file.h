// Whether a shared library can be opened without harm: one that is cut short kills the process that opens it, and a pipe holds it up for ever.
#pragma once

#include <string>

namespace belfry {

/// What is wrong with the file: "is no regular file", or by its ELF header "is cut short: …"; empty if nothing is, or if it is no ELF file or not there, which the loader says
/// itself, or a bare name.
std::string library_flaw(const std::string& file);

}  // namespace belfry
