#include <belfry/ops/cuda/nvrtc_internal.h>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <nvrtc.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string_view>
#include <thread>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>

namespace belfry {

struct Nvrtc::Functions {
  decltype(&::nvrtcVersion) version;
  decltype(&::nvrtcCreateProgram) create;
  decltype(&::nvrtcDestroyProgram) destroy;
  decltype(&::nvrtcCompileProgram) compile;
  decltype(&::nvrtcGetCUBINSize) cubin_size;
  decltype(&::nvrtcGetCUBIN) cubin;
  decltype(&::nvrtcGetProgramLogSize) log_size;
  decltype(&::nvrtcGetProgramLog) log;
  decltype(&::nvrtcGetErrorString) error;
};

namespace {

const std::vector<std::string> kOptions = {"--std=c++17", "--fmad=false", "--device-as-default-execution-space", "--ptxas-options=-v"};

/// The next is let in once all blocks have begun: then it takes no place that one of them waits for.
const char* const kWait = R"(inline void wait_for_others() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}
)";

std::uint64_t hash(const std::string& bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::string digits(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

template <class F>
void find(void* library, const char* name, F& out) {
  out = reinterpret_cast<F>(dlsym(library, name));
  if (!out) throw DeviceError(fmt::format("NVRTC lacks the function {}; CUDA 13 has it", name));
}

/// What the linker wrote into the library that holds the address, in hexadecimal: no two releases have the same. Empty if there is none.
std::string build_of(const void* address) {
  struct Search {
    std::uintptr_t address;
    std::string build;
  } search{reinterpret_cast<std::uintptr_t>(address), {}};
  auto look = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& s = *static_cast<Search*>(data);
    auto headers = std::span(info->dlpi_phdr, info->dlpi_phnum);
    auto holds = [&](const ElfW(Phdr)& h) { return h.p_type == PT_LOAD && s.address - info->dlpi_addr - h.p_vaddr < h.p_memsz; };
    if (std::none_of(headers.begin(), headers.end(), holds)) return 0;
    for (const ElfW(Phdr)& h : headers) {
      if (h.p_type != PT_NOTE) continue;
      const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + h.p_vaddr);
      for (const unsigned char* end = at + h.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof note);
        const unsigned char* text = at + sizeof note + (note.n_namesz + 3u) / 4 * 4;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + sizeof note, "GNU", 4) == 0)
          for (unsigned i = 0; i < note.n_descsz; ++i) s.build += fmt::format("{:02x}", static_cast<unsigned>(text[i]));
        at = text + (note.n_descsz + 3u) / 4 * 4;
      }
    }
    return 1;
  };
  dl_iterate_phdr(look, &search);
  return search.build;
}

/// The largest number before each "WORDS" in ptxas's lines, or their sum.
void read_log(const std::string& log, Compiled& out) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    auto number_before = [&](const char* words) {
      std::size_t at = line.find(words);
      if (at == std::string::npos) return 0;
      std::size_t begin = line.find_last_not_of("0123456789", at - 1) + 1;
      return std::atoi(line.c_str() + begin);
    };
    out.registers = std::max(out.registers, number_before(" registers"));
    out.spilled += number_before(" bytes spill stores") + number_before(" bytes spill loads");
  }
}

/// What stands before a kept cubin: mark, key, sizes and the hash of what follows.
struct Header {
  char mark[8];
  std::uint64_t key, bytes, hash;
  std::int32_t registers, spilled;
};
constexpr char kMark[8] = {'b', 'e', 'l', 'f', 'r', 'y', 'k', '1'};

struct KernelText {
  std::string_view name;
  std::size_t body;  ///< behind its brace
};

/// "KERNEL void name(arguments) {" and those of KERNEL_AHEAD and KERNEL_THREE, in order.
std::vector<KernelText> kernels_in(std::string_view source) {
  std::vector<KernelText> out;
  for (std::size_t at = source.find("KERNEL"); at != source.npos; at = source.find("KERNEL", at + 1))
    for (std::string_view before : {"KERNEL void ", "KERNEL_AHEAD void ", "KERNEL_THREE void "}) {
      if (!source.substr(at).starts_with(before)) continue;
      const std::size_t name = at + before.size(), open = source.find('(', name), end = source.find_first_of("()", open == source.npos ? open : open + 1);
      if (end != source.npos && source.substr(end).starts_with(") {")) out.push_back({source.substr(name, open - name), end + 3});
    }
  return out;
}

}  // namespace

std::string waiting(const std::string& source) {
  std::string out = kWait;
  std::size_t from = 0;
  for (const KernelText& k : kernels_in(source)) {
    out.append(source, from, k.body - from).append(" wait_for_others();");
    from = k.body;
  }
  return out.append(source, from);
}

bool waits(const std::string& source, const std::string& entry) {
  const std::vector<KernelText> all = kernels_in(source);
  return std::any_of(all.begin(), all.end(), [&](const KernelText& k) { return k.name == entry; });
}

std::shared_ptr<CudaToolkit> new_toolkit() { return std::make_shared<CudaToolkit>(); }

std::filesystem::path cache_folder() {
  auto named = [](const char* name) { const char* v = std::getenv(name); return std::string(v ? v : ""); };
  if (std::string own = named("BELFRY_CACHE"); !own.empty()) return own;
  if (std::string shared = named("XDG_CACHE_HOME"); !shared.empty()) return std::filesystem::path(shared) / "belfry";
  if (std::string home = named("HOME"); !home.empty()) return std::filesystem::path(home) / ".cache" / "belfry";
  return {};
}

Nvrtc::~Nvrtc() {
  std::lock_guard lock(mutex_);
  waiting_.clear();
}

const Nvrtc::Functions& Nvrtc::functions() {
  std::call_once(found_, [&] {
    void* library = toolkit_->library(CudaLibrary::nvrtc);
    auto f = std::make_shared<Functions>();
    find(library, "nvrtcVersion", f->version);
    find(library, "nvrtcCreateProgram", f->create);
    find(library, "nvrtcDestroyProgram", f->destroy);
    find(library, "nvrtcCompileProgram", f->compile);
    find(library, "nvrtcGetCUBINSize", f->cubin_size);
    find(library, "nvrtcGetCUBIN", f->cubin);
    find(library, "nvrtcGetProgramLogSize", f->log_size);
    find(library, "nvrtcGetProgramLog", f->log);
    find(library, "nvrtcGetErrorString", f->error);
    int major = 0, minor = 0;
    f->version(&major, &minor);
    version_ = fmt::format("{}.{} {}", major, minor, build_of(reinterpret_cast<const void*>(f->version)));  // it does not tell its patch release
    functions_ = std::move(f);
  });
  return *functions_;
}

std::string Nvrtc::whole_key(const std::string& text, const std::string& arch) {
  std::string key = text;
  for (const std::string& o : kOptions) key += "\n" + o;
  return key + "\n" + version() + "\n" + arch;
}

std::string Nvrtc::key(const std::string& source, const std::string& arch) { return digits(hash(whole_key(waiting(source), arch))); }

Nvrtc::Future Nvrtc::begin(const std::string& source, const std::string& arch) {
  const std::string name = arch + "\n" + source;
  std::unique_lock lock(mutex_);
  if (auto known = known_.find(name); known != known_.end()) return known->second;
  if (working_ < static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u))) {
    std::erase_if(workers_, [](const std::future<void>& w) { return w.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    workers_.reserve(workers_.size() + 1);  // or what is begun would be waited for with the lock held
    try {
      workers_.push_back(std::async(std::launch::async, [this] { work(); }));
      ++working_;
    } catch (const std::system_error&) {  // the process has as many threads as it may have
    }
  }
  waiting_.emplace_back([this, source, arch] { return made(source, arch); });
  const Future out = known_[name] = waiting_.back().get_future().share();
  if (working_ == 0) {
    auto alone = std::move(waiting_.back());
    waiting_.pop_back();
    lock.unlock();
    alone();
  }
  return out;
}

void Nvrtc::work() {
  for (std::unique_lock lock(mutex_); ; lock.lock()) {
    if (waiting_.empty()) {
      --working_;
      return;
    }
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
  }
}

std::shared_ptr<const Compiled> Nvrtc::made(const std::string& source, const std::string& arch) {
  const std::string text = waiting(source), key = whole_key(text, arch);
  Compiled out;
  if (!read(key, out)) {
    out = run(text, arch);
    write(key, out);
  }
  return std::make_shared<const Compiled>(std::move(out));
}

Compiled Nvrtc::run(const std::string& text, const std::string& arch) {
  const Functions& f = functions();
  auto check = [&](nvrtcResult code, const char* call) {
    if (code != NVRTC_SUCCESS) throw DeviceError(fmt::format("{} gives {}", call, f.error(code)));
  };
  nvrtcProgram program = nullptr;
  check(f.create(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  auto closed = [&](nvrtcProgram* p) { f.destroy(p); };
  std::unique_ptr<nvrtcProgram, decltype(closed)> guard(&program, closed);
  std::string for_arch = "--gpu-architecture=" + arch;
  std::vector<const char*> options = {for_arch.c_str()};
  for (const std::string& o : kOptions) options.push_back(o.c_str());
  nvrtcResult code = f.compile(program, static_cast<int>(options.size()), options.data());
  std::size_t size = 0;
  check(f.log_size(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  check(f.log(program, log.data()), "nvrtcGetProgramLog");
  if (code != NVRTC_SUCCESS) throw DeviceError(fmt::format("NVRTC cannot compile a kernel for {}: {}\n{}", arch, f.error(code), log.c_str()));
  Compiled out;
  read_log(log, out);
  check(f.cubin_size(program, &size), "nvrtcGetCUBINSize");
  out.cubin.resize(size);
  check(f.cubin(program, out.cubin.data()), "nvrtcGetCUBIN");
  ++compiled_;
  return out;
}

bool Nvrtc::read(const std::string& key, Compiled& out) const {
  if (cache_.empty()) return false;
  std::ifstream file(cache_ / (digits(hash(key)) + ".cubin"), std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  Header h;
  if (all.size() < sizeof h) return false;
  std::memcpy(&h, all.data(), sizeof h);
  // A second hash of the key tells apart texts whose file names are the same.
  std::string cubin = all.substr(sizeof h);
  if (std::memcmp(h.mark, kMark, sizeof kMark) != 0 || h.key != hash("again\n" + key) || h.bytes != cubin.size() || h.hash != hash(cubin)) return false;
  out = {std::move(cubin), h.registers, h.spilled};
  return true;
}

void Nvrtc::write(const std::string& key, const Compiled& what) const {
  if (cache_.empty()) return;
  // A cache that cannot be written costs time, nothing else.
  std::error_code ignored;
  std::filesystem::create_directories(cache_, ignored);
  static std::atomic<int> count{0};
  const std::string name = digits(hash(key));
  auto at = cache_ / (name + ".cubin"), beside = cache_ / fmt::format("{}.{}.{}", name, getpid(), count++);
  Header h{{}, hash("again\n" + key), what.cubin.size(), hash(what.cubin), what.registers, what.spilled};
  std::memcpy(h.mark, kMark, sizeof kMark);
  bool whole = false;
  {
    std::ofstream file(beside, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&h), sizeof h).write(what.cubin.data(), static_cast<std::streamsize>(what.cubin.size()));
    file.close();
    whole = file.good();
  }
  if (whole) std::filesystem::rename(beside, at, ignored);
  if (!whole || ignored) std::filesystem::remove(beside, ignored);
}

}  // namespace belfry
