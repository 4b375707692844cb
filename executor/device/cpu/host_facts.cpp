#include <belfry/executor/device/cpu/host_facts.h>

#include <dnnl.hpp>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace belfry {
namespace {

std::string isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "sse41";
    case dnnl::cpu_isa::avx: return "avx";
    case dnnl::cpu_isa::avx2: return "avx2";
    case dnnl::cpu_isa::avx2_vnni: return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core: return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni: return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16: return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx: return "avx512_core_amx";
#if DNNL_VERSION_MAJOR >= 3
    case dnnl::cpu_isa::avx2_vnni_2: return "avx2_vnni_2";
    case dnnl::cpu_isa::avx512_core_fp16: return "avx512_core_fp16";
    case dnnl::cpu_isa::avx512_core_amx_fp16: return "avx512_core_amx_fp16";
#endif
    default: return fmt::format("isa {}", static_cast<int>(isa));
  }
}

/// The text behind "key :" in a file of lines; empty if there is none.
std::string line_of(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.compare(0, key.size(), key) == 0) {
      std::size_t from = line.find_first_not_of(" \t", line.find(':') + 1);
      return from == std::string::npos ? "" : line.substr(from);
    }
  return "";
}

std::int64_t kibibytes(const std::string& text) { return text.empty() ? 0 : std::stoll(text) * 1024; }

/// _OPENMP is the date of the specification.
std::string openmp_version() {
  constexpr std::pair<int, const char*> kDates[] = {{201511, "4.5"}, {201811, "5.0"}, {202011, "5.1"}, {202111, "5.2"}};
  for (const auto& [date, version] : kDates)
    if (date == _OPENMP) return version;
  return std::to_string(_OPENMP);
}

}  // namespace

HostFacts host_facts() {
  HostFacts out;
  out.processor = line_of("/proc/cpuinfo", "model name");
  cpu_set_t mine;
  out.cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  out.memory_bytes = kibibytes(line_of("/proc/meminfo", "MemTotal"));
  out.available_bytes = kibibytes(line_of("/proc/meminfo", "MemAvailable"));
  out.isa = isa_name(dnnl::get_effective_cpu_isa());
#ifdef __clang__
  out.own_isa = "default";  // its kernels have no clones
#else
  out.own_isa = __builtin_cpu_supports("avx512f") ? "avx512f" : __builtin_cpu_supports("avx2") ? "avx2" : "default";
#endif
  const dnnl::version_t* v = dnnl::version();
  out.libraries.push_back({"oneDNN", fmt::format("{}.{}.{}", v->major, v->minor, v->patch)});
  out.libraries.push_back({"OpenMP", openmp_version()});
  out.libraries.push_back({"glibc", gnu_get_libc_version()});  // expf, logf, erff and tanhf of kernels are its own
  return out;
}

std::string isa_text(const HostFacts& host) { return fmt::format("{}, {}", host.isa, host.own_isa); }

std::string libraries_text(const HostFacts& host) {
  std::string out;
  for (const LibraryFact& l : host.libraries) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", l.name, l.version);
  return out;
}

}  // namespace belfry
