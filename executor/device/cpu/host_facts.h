// What this host is: cores, memory, instruction set and the libraries that kernels lean on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace belfry {

struct LibraryFact {
  std::string name, version;
};

struct HostFacts {
  std::string processor;                ///< as the system names it; empty if it does not
  int cores = 1;                        ///< that this process may use
  std::int64_t memory_bytes = 0;        ///< of the host
  std::int64_t available_bytes = 0;     ///< that could be had now
  std::string isa;                      ///< the instruction set that oneDNN uses: "avx512_core_bf16"
  std::vector<LibraryFact> libraries;   ///< with their versions at run time
};

/// Reads /proc; what is not there keeps its default.
HostFacts host_facts();

}  // namespace belfry
