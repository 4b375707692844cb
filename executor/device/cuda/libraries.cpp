#include <belfry/executor/device/cuda/libraries_internal.h>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>

#include <belfry/executor/device/library_file.h>
#include <belfry/graph/error.h>

namespace belfry {
namespace fs = std::filesystem;
namespace {

struct Row {
  const char* name;
  const char* file;       ///< without the major version
  int major;              ///< of the file's name, and of the library
  int minor;              ///< at least
  const char* wheel;      ///< the package on PyPI that holds it
  bool of_the_driver;     ///< comes with the driver, in no package
};

constexpr Row kRows[] = {
    {"cuBLASLt", "libcublasLt.so", 13, 0, "nvidia-cublas", false},
    {"NVRTC", "libnvrtc.so", 13, 0, "nvidia-cuda-nvrtc", false},
    {"cuDNN", "libcudnn.so", 9, 0, "nvidia-cudnn-cu13", false},
    {"NCCL", "libnccl.so", 2, 28, "nvidia-nccl-cu13", false},
    {"NVML", "libnvidia-ml.so", 1, 0, "", true},
};
const Row& row(CudaLibrary which) { return kRows[static_cast<std::size_t>(which)]; }

std::string soname(const Row& r) { return fmt::format("{}.{}", r.file, r.major); }

std::string wanted(const Row& r) { return r.minor ? fmt::format("{}.{} or a later {}", r.major, r.minor, r.major) : fmt::format("{}.x", r.major); }

std::string way_out(const Row& r) {
  if (r.of_the_driver) return "install NVIDIA's driver with its management library";
  return fmt::format("install it (pip install {}), or name its folder in BELFRY_CUDA_PATH", r.wheel);
}

void add_folder(std::vector<fs::path>& out, const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored) && std::find(out.begin(), out.end(), folder) == out.end()) out.push_back(folder);
}

/// What a glob of one `*` per part finds, sorted; parts without one are taken as they are.
std::vector<fs::path> matching(const fs::path& root, const std::vector<std::string>& parts) {
  std::vector<fs::path> at = {root};
  for (const std::string& part : parts) {
    std::vector<fs::path> next;
    for (const fs::path& folder : at) {
      std::error_code ignored;
      std::size_t star = part.find('*');
      if (star == std::string::npos) {
        if (fs::exists(folder / part, ignored)) next.push_back(folder / part);
        continue;
      }
      for (fs::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored))
        if (i->path().filename().string().starts_with(part.substr(0, star))) next.push_back(i->path());
    }
    std::sort(next.begin(), next.end());
    at = std::move(next);
  }
  return at;
}

void add_wheels(std::vector<fs::path>& out, const fs::path& prefix) {
  for (const char* lib : {"lib", "lib64", "local/lib"})
    for (const char* packages : {"site-packages", "dist-packages"})
      for (const fs::path& folder : matching(prefix / lib, {"python3*", packages, "nvidia", "*", "lib"})) add_folder(out, folder);
}

/// The prefix of the first python3 on PATH: /usr for /usr/bin/python3. A link is followed as well: environments link to their base.
void add_python(std::vector<fs::path>& out) {
  const char* path = std::getenv("PATH");
  std::string text = path ? path : "";
  for (std::size_t from = 0; from < text.size();) {
    std::size_t to = std::min(text.find(':', from), text.size());
    fs::path python = fs::path(text.substr(from, to - from)) / "python3";
    std::error_code ignored;
    if (to > from && fs::exists(python, ignored)) {
      add_wheels(out, python.parent_path().parent_path());
      fs::path real = fs::canonical(python, ignored);
      if (!ignored) add_wheels(out, real.parent_path().parent_path());
      if (python.parent_path().filename() == "shims")  // of pyenv: a script that looks for the version to run
        for (const fs::path& version : matching(python.parent_path().parent_path(), {"versions", "*"})) add_wheels(out, version);
      return;
    }
    from = to + 1;
  }
}

/// Where pip installs for one user alone, as it does by itself where the interpreter's own folder is not writable.
void add_user(std::vector<fs::path>& out) {
  const char *base = std::getenv("PYTHONUSERBASE"), *home = std::getenv("HOME");
  if (base && *base) add_wheels(out, base);
  else if (home && *home) add_wheels(out, fs::path(home) / ".local");
}

std::string path_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : otherwise;
}

/// "9.19.0" of what cudnnGetVersion and its like give: 91900 by hundreds, of cuBLASLt 130100.
std::string dotted(std::size_t number, std::size_t major_unit) { return fmt::format("{}.{}.{}", number / major_unit, number % major_unit / 100, number % 100); }

std::pair<int, int> numbers(const std::string& version) {
  std::size_t dot = version.find('.');
  return {std::atoi(version.c_str()), dot == std::string::npos ? 0 : std::atoi(version.c_str() + dot + 1)};
}

/// The library's own answer; empty if it lacks the function.
std::string asked_version(CudaLibrary which, void* handle) {
  auto find = [&](const char* name) { return dlsym(handle, name); };
  int a = 0, b = 0;
  switch (which) {
    case CudaLibrary::cublas_lt:
      if (auto f = reinterpret_cast<std::size_t (*)()>(find("cublasLtGetVersion"))) return dotted(f(), 10000);
      break;
    case CudaLibrary::nvrtc:
      if (auto f = reinterpret_cast<int (*)(int*, int*)>(find("nvrtcVersion")); f && f(&a, &b) == 0) return fmt::format("{}.{}", a, b);
      break;
    case CudaLibrary::cudnn:
      if (auto f = reinterpret_cast<std::size_t (*)()>(find("cudnnGetVersion"))) return dotted(f(), 10000);
      break;
    case CudaLibrary::nccl:
      if (auto f = reinterpret_cast<int (*)(int*)>(find("ncclGetVersion")); f && f(&a) == 0) return dotted(static_cast<std::size_t>(a), 10000);
      break;
    case CudaLibrary::nvml: return find("nvmlInit_v2") ? "1" : "";
  }
  return "";
}

/// cuDNN aborts the process where it does not find the cuBLASLt of the CUDA that it was built for, which need not be ours.
std::string lacks_cublas_lt(const std::string& cudnn, void* handle) {
  auto built_for = reinterpret_cast<std::size_t (*)()>(dlsym(handle, "cudnnGetCudartVersion"));
  const int major = built_for ? static_cast<int>(built_for() / 1000) : row(CudaLibrary::cublas_lt).major;
  if (major == row(CudaLibrary::cublas_lt).major) return {};  // ours is opened first
  const std::string needed = fmt::format("{}.{}", row(CudaLibrary::cublas_lt).file, major);
  std::error_code ignored;
  for (const char* folder : {".", "../../cublas/lib"})
    if (fs::exists(fs::path(cudnn).parent_path() / folder / needed, ignored)) return {};
  if (dlopen(needed.c_str(), RTLD_LAZY | RTLD_LOCAL)) return {};
  return fmt::format("{} is for CUDA {}, and {}, which it cannot do without, was not found", cudnn, major, needed);
}

}  // namespace

std::vector<fs::path> cuda_folders() {
  std::vector<fs::path> out;
  if (const char* own = std::getenv("BELFRY_CUDA_PATH")) {
    std::string text = own;
    for (std::size_t from = 0; from < text.size();) {
      std::size_t to = std::min(text.find(':', from), text.size());
      if (to > from) out.push_back(text.substr(from, to - from));
      from = to + 1;
    }
  }
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment && *environment) add_wheels(out, environment);
  add_user(out);
  add_python(out);
  add_folder(out, "/usr/local/cuda/lib64");
  return out;
}

CudaLibraries::Found& CudaLibraries::look(CudaLibrary which) {
  Found& found = found_[static_cast<std::size_t>(which)];
  if (found.looked) return found;
  found.looked = true;
  const Row& r = row(which);
  found.facts.name = r.name;
  const std::string others = look_in_folders(which, found);
  load(which, found);
  if (found.facts.path.empty() && !others.empty()) found.missing.why = fmt::format("wrong version: {} was found, wanted is {} ({})", others, wanted(r), soname(r));
  return found;
}

/// Sets the path of the wanted major version; if there is none, gives the others that are there.
std::string CudaLibraries::look_in_folders(CudaLibrary which, Found& found) {
  const Row& r = row(which);
  std::vector<std::string> others;
  std::error_code ignored;
  for (const fs::path& folder : folders_) {
    fs::path file = folder / soname(r);
    if (fs::exists(file, ignored)) {
      found.facts.path = file.string();
      return "";
    }
    for (const fs::path& other : matching(folder, {std::string(r.file) + ".*"}))
      if (others.empty() || fs::path(others.back()).parent_path() != folder) others.push_back(other.string());
  }
  return fmt::format("{}", fmt::join(others, ", "));
}

void CudaLibraries::load(CudaLibrary which, Found& found) {
  const Row& r = row(which);
  auto refuse = [&](const std::string& why) { found.missing = {r.name, why, way_out(r)}; };
  auto refused = [&](const fs::path& file) {
    const std::string why = library_flaw(file.string());
    if (!why.empty()) refuse(fmt::format("{} {}", file.string(), why));
    return !why.empty();
  };
  // NVRTC looks for its builtins by a bare name, which is found if they are loaded.
  if (which == CudaLibrary::nvrtc && !found.facts.path.empty())
    for (const fs::path& builtins : matching(fs::path(found.facts.path).parent_path(), {fmt::format("libnvrtc-builtins.so.{}.*", r.major)})) {
      if (refused(builtins)) return;
      dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  const std::string file = found.facts.path.empty() ? soname(r) : found.facts.path;
  if (refused(file)) return;
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const std::string said = dlerror();
    if (!found.facts.path.empty()) return refuse(fmt::format("{} cannot be opened: {}", file, said));
    std::vector<std::string> where;
    for (const fs::path& f : folders_) where.push_back(f.string());
    where.push_back("where the loader looks");
    return refuse(fmt::format("{} was not found; looked for in {}", soname(r), fmt::join(where, ", ")));
  }
  found.facts.path = path_of(handle, file);
  // libcudnn is a shim that aborts the process if it does not find this part when it is first called.
  if (which == CudaLibrary::cudnn) {
    const std::string part = fmt::format("libcudnn_graph.so.{}", r.major);
    const fs::path beside = fs::path(found.facts.path).parent_path() / part;
    for (const fs::path& other : matching(beside.parent_path(), {"libcudnn_*"}))  // which it opens itself
      if (refused(other)) return;
    if (!dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) && !dlopen(part.c_str(), RTLD_NOW | RTLD_LOCAL)) return refuse(fmt::format("{} lacks {} beside it", found.facts.path, part));
  }
  found.handle = handle;
  ask_version(which, found);
}

void CudaLibraries::ask_version(CudaLibrary which, Found& found) {
  const Row& r = row(which);
  found.facts.version = asked_version(which, found.handle);
  const auto [major, minor] = numbers(found.facts.version);
  std::string why;
  if (found.facts.version.empty()) why = fmt::format("{} is no {}: it does not tell its version", found.facts.path, r.name);
  else if (major != r.major || minor < r.minor) why = fmt::format("wrong version: {} is {}, wanted is {}", found.facts.path, found.facts.version, wanted(r));
  else if (which == CudaLibrary::cudnn) why = lacks_cublas_lt(found.facts.path, found.handle);
  if (why.empty()) return;
  found.handle = nullptr;
  found.missing = {r.name, why, way_out(r)};
}

CudaLibraryFacts CudaLibraries::facts(CudaLibrary which) { return look(which).facts; }

Missing CudaLibraries::missing(CudaLibrary which) {
  Found& found = look(which);
  if (found.missing.what.empty() && which == CudaLibrary::cudnn)
    if (const Missing lt = missing(CudaLibrary::cublas_lt); !lt.what.empty()) return {"cuDNN", fmt::format("it needs cuBLASLt, and {}", lt.why), lt.way_out};
  return found.missing;
}

std::vector<int> CudaLibraries::architectures() {
  if (!missing(CudaLibrary::nvrtc).what.empty()) return {};
  void* handle = open(CudaLibrary::nvrtc);
  auto count_of = reinterpret_cast<int (*)(int*)>(dlsym(handle, "nvrtcGetNumSupportedArchs"));
  auto list = reinterpret_cast<int (*)(int*)>(dlsym(handle, "nvrtcGetSupportedArchs"));
  int count = 0;
  if (!count_of || !list || count_of(&count) != 0 || count < 1) return {};
  std::vector<int> out(static_cast<std::size_t>(count));
  if (list(out.data()) != 0) return {};
  std::sort(out.begin(), out.end());
  return out;
}

void* CudaLibraries::open(CudaLibrary which) {
  if (which == CudaLibrary::cudnn && missing(which).what.empty()) {
    try {
      open(CudaLibrary::cublas_lt);
    } catch (const MissingError& e) {
      throw MissingError({"cuDNN", fmt::format("it cannot be used without cuBLASLt: {}", e.missing.why), e.missing.way_out});
    }
    look(CudaLibrary::nvrtc);  // it asks for it by a bare name, and names no engine where that is not found
  }
  Found& found = look(which);
  if (found.missing.what.empty() && !found.handle) load(which, found);
  if (const Missing m = missing(which); !m.what.empty()) throw MissingError(m);
  return found.handle;
}

}  // namespace belfry
