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
  std::string own_isa;                  ///< that which our own kernels use: "avx512f", "avx2" or "default"
  std::vector<LibraryFact> libraries;   ///< with their versions at run time
};

/// "avx512_core_bf16, avx512f" and "oneDNN 3.1.0, OpenMP 4.5, glibc 2.36": what decides bits beside a plan's arithmetic.
std::string isa_text(const HostFacts& host);
std::string libraries_text(const HostFacts& host);

/// Reads /proc; what is not there keeps its default.
HostFacts host_facts();

}  // namespace belfry
