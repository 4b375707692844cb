#include <belfry/executor/device/library_file.h>

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace belfry {

std::string library_flaw(const std::string& file) {
  if (file.find('/') == file.npos) return {};
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return "is no regular file";
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const auto bytes = static_cast<std::uint64_t>(in.tellg());
  Elf64_Ehdr header{};
  in.seekg(0);
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) return {};
  std::uint64_t wanted = header.e_phoff + std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (in.read(reinterpret_cast<char*>(parts.data()), static_cast<std::streamsize>(parts.size() * sizeof(Elf64_Phdr))))
    for (const Elf64_Phdr& p : parts)
      if (p.p_type == PT_LOAD) wanted = std::max(wanted, p.p_offset + p.p_filesz);
  return bytes < wanted ? fmt::format("is cut short: it has {} bytes of {}", bytes, wanted) : "";
}

}  // namespace belfry
