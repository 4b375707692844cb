#include <belfry/executor/device/cuda/backend.h>

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include <belfry/executor/device/library_file.h>
#include <belfry_build.h>

namespace belfry {
namespace {

constexpr const char* kFile = "libbelfry_cuda.so";

/// The folder of the library or program that this function was linked into.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  std::filesystem::path file = std::filesystem::canonical(info.dli_fname, ignored);
  // A program's own name may be one without a folder.
  if (ignored) file = std::filesystem::canonical("/proc/self/exe", ignored);
  return file.parent_path();
}

Missing not_found(const std::string& file, bool named) {
  if (named) return {"GPU backend", fmt::format("BELFRY_CUDA_BACKEND names {}, which is not there", file), "unset it, or let it name the backend's file"};
  if (!BELFRY_CUDA_BUILT)
    return {"GPU backend", "this build has none, since no CUDA 13 headers were found when it was made",
            "build Belfry where CUDA 13 is installed (meson setup -Dcuda=enabled says what it lacks)"};
  return {"GPU backend", fmt::format("{} is not there", file), fmt::format("install {} beside libbelfry, or name it in BELFRY_CUDA_BACKEND", kFile)};
}

Missing broken(const std::string& why, bool named) {
  return {"GPU backend", why, named ? "unset BELFRY_CUDA_BACKEND, or let it name the backend of this build" : "install Belfry anew, with the backend of the same build"};
}

}  // namespace

OpenedCudaBackend open_cuda_backend() {
  OpenedCudaBackend out;
  const char* named = std::getenv("BELFRY_CUDA_BACKEND");
  const bool is_named = named && *named;
  const std::string file = is_named ? named : (own_folder() / kFile).string();
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    out.missing = not_found(file, is_named);
    return out;
  }
  if (const std::string why = library_flaw(file); !why.empty()) {
    out.missing = broken(fmt::format("{} {}", file, why), is_named);
    return out;
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    out.missing = broken(fmt::format("{} cannot be opened: {}", file, dlerror()), is_named);
    return out;
  }
  auto entry = reinterpret_cast<CudaBackendEntry>(dlsym(library, kCudaBackendSymbol));
  if (!entry) {
    out.missing = broken(fmt::format("{} is no GPU backend of this version: it lacks {}", file, kCudaBackendSymbol), is_named);
    return out;
  }
  const CudaBackend* table = entry();
  if (table->table != kCudaBackendTable || table->facts_size != sizeof(CudaFacts) || std::string(table->belfry) != BELFRY_VERSION) {
    out.missing = broken(fmt::format("{} belongs to another build: its table is {} of Belfry {}, wanted is {} of Belfry {}", file, table->table, table->belfry, kCudaBackendTable, BELFRY_VERSION), is_named);
    return out;
  }
  if (std::string(table->build) != BELFRY_BUILD) {
    out.missing = broken(fmt::format("{} belongs to another build of Belfry {}: {}, wanted is {}", file, table->belfry, table->build, BELFRY_BUILD), is_named);
    return out;
  }
  out.table = table;
  out.file = file;
  return out;
}

CudaFacts cuda_facts() {
  CudaFacts out;
  OpenedCudaBackend backend = open_cuda_backend();
  if (!backend.table) {
    out.missing.push_back(backend.missing);
    return out;
  }
  out.backend = backend.file;
  backend.table->probe(out);
  return out;
}

}  // namespace belfry
