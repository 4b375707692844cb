// How generated kernels are launched: text in, functions out. The driver is one way to run them; tests have another, on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

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
  /// Returns at once; neither allocates nor waits, once it is loaded.
  virtual void launch(Grid grid, std::span<const std::uint64_t> words, void* stream) = 0;
};

class GpuCode : public std::enable_shared_from_this<GpuCode> {
 public:
  virtual ~GpuCode() = default;
  /// For the device of the thread's current context; it may be compiled meanwhile, on another thread, and is waited for by `load`, or by its first launch. `words`: how many the entry takes.
  virtual std::shared_ptr<GpuFunction> function(const std::string& source, const std::string& entry, std::size_t words) = 0;
  /// Waits for what this thread has asked for, of the device of its current context, and brings it there. DeviceError where that cannot be.
  virtual void load() {}
  /// A copy that stays, one of equal texts.
  const std::string& kept(const std::string& text) {
    std::lock_guard lock(kept_mutex_);
    return *kept_.insert(text).first;
  }

 private:
  std::mutex kept_mutex_;
  std::set<std::string> kept_;
};
using GpuCodeRef = std::shared_ptr<GpuCode>;

/// Compiles by NVRTC and launches by the driver; opens neither before it is asked for a function.
GpuCodeRef driver_code(std::shared_ptr<CudaToolkit> toolkit);

}  // namespace belfry
