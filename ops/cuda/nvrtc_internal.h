// Compiling CUDA text by NVRTC, kept in memory and on disk. Needs neither driver nor GPU.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belfry {

class CudaToolkit;

/// What one text was compiled to.
struct Compiled {
  std::string cubin;
  int registers = 0;    ///< of the entry that takes the most
  int spilled = 0;      ///< bytes of spill stores and loads, of all entries
};

/// The text as it is compiled: the first thing that a KERNEL, KERNEL_AHEAD or KERNEL_THREE of the prelude does is to wait for what stands before it in its stream, from compute capability 9.0 on. So it may be launched
/// before that has ended (programmatic dependent launch).
std::string waiting(const std::string& source);
/// Whether the entry of a text is such a kernel.
bool waits(const std::string& source, const std::string& entry);

/// A toolkit that has opened nothing yet: for compiling without a device.
std::shared_ptr<CudaToolkit> new_toolkit();

/// $BELFRY_CACHE, else belfry in $XDG_CACHE_HOME or ~/.cache; empty where there is neither.
std::filesystem::path cache_folder();

class Nvrtc {
 public:
  using Future = std::shared_future<std::shared_ptr<const Compiled>>;
  /// An empty folder keeps nothing on disk.
  explicit Nvrtc(std::shared_ptr<CudaToolkit> toolkit, std::filesystem::path cache = cache_folder()) : toolkit_(std::move(toolkit)), cache_(std::move(cache)) {}
  /// What nobody has begun is dropped.
  ~Nvrtc();

  /// Products and sums are rounded apart, so that a formula gives the CPU's bits. DeviceError with NVRTC's log. Any thread may ask.
  std::shared_ptr<const Compiled> compile(const std::string& source, const std::string& arch) { return begin(source, arch).get(); }
  /// The same, on a thread beside the caller's: as many at once as there are cores, 16 at the most.
  Future begin(const std::string& source, const std::string& arch);
  /// "13.0" and the build, which tells patch releases apart: part of what a kept text is known by.
  const std::string& version() { return functions(), version_; }
  /// What a kept text is found by: 16 hexadecimal digits, of the text as it is compiled, the options, the version and the architecture (an empty one: of any).
  std::string key(const std::string& source, const std::string& arch);
  /// Texts that were compiled, not read from a cache.
  int compiled() const { return compiled_; }

 private:
  struct Functions;
  const Functions& functions();
  std::shared_ptr<const Compiled> made(const std::string& source, const std::string& arch);
  void work();
  /// All that a compiled text depends on.
  std::string whole_key(const std::string& text, const std::string& arch);
  Compiled run(const std::string& text, const std::string& arch);
  bool read(const std::string& key, Compiled& out) const;
  void write(const std::string& key, const Compiled& what) const;

  std::shared_ptr<CudaToolkit> toolkit_;
  std::filesystem::path cache_;
  std::once_flag found_;
  std::shared_ptr<const Functions> functions_;
  std::string version_;
  std::atomic<int> compiled_ = 0;
  std::mutex mutex_;
  std::map<std::string, Future> known_;  // by source and arch
  std::deque<std::packaged_task<std::shared_ptr<const Compiled>()>> waiting_;
  int working_ = 0;
  std::vector<std::future<void>> workers_;  // each until nothing waits
};

}  // namespace belfry
