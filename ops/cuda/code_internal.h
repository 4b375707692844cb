// How generated kernels are launched: text in, functions out. The driver is one way to run them; tests have another, on the host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace belfry {

class CudaToolkit;

struct Grid {
  std::int64_t blocks = 1;
  int threads = 256;
  int shared = 0;  ///< bytes beside what the text declares; every GPU since Ampere has 99 KiB for a block
};

/// An entry of a compiled text. Its one parameter is a struct of words of 8 bytes: addresses, numbers, doubles.
class GpuFunction {
 public:
  virtual ~GpuFunction() = default;
  /// Waits until it is compiled, and brings it to its device. DeviceError where that cannot be.
  virtual void load() {}
  /// Returns at once; neither allocates nor waits, once it is loaded.
  virtual void launch(Grid grid, std::span<const std::uint64_t> words, void* stream) = 0;
};

class GpuCode : public std::enable_shared_from_this<GpuCode> {
 public:
  virtual ~GpuCode() = default;
  /// For the device of the thread's current context; it may be compiled meanwhile, on another thread. Launching what is not loaded loads it. `words`: how many the entry takes.
  std::shared_ptr<GpuFunction> function(const std::string& source, const std::string& entry, std::size_t words);
  /// Loads what this thread has asked for since it last did, of the device of its current context.
  void load();
  /// A copy that stays, one of equal texts.
  const std::string& kept(const std::string& text) {
    std::lock_guard lock(mutex_);
    return *kept_.insert(text).first;
  }

 private:
  virtual std::shared_ptr<GpuFunction> make(const std::string& source, const std::string& entry, std::size_t words) = 0;
  /// Of the thread's current context.
  virtual int device() const { return 0; }

  std::mutex mutex_;
  std::set<std::string> kept_;
  std::map<std::pair<std::thread::id, int>, std::vector<std::weak_ptr<GpuFunction>>> asked_;
};
using GpuCodeRef = std::shared_ptr<GpuCode>;

/// Compiles by NVRTC and launches by the driver; opens neither before it is asked for a function.
GpuCodeRef driver_code(std::shared_ptr<CudaToolkit> toolkit);

}  // namespace belfry
