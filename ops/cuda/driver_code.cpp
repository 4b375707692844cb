#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>

namespace belfry {
namespace {

/// Libraries are of no context: one serves all devices of an architecture. They stay loaded.
class Libraries {
 public:
  explicit Libraries(const std::shared_ptr<CudaToolkit>& toolkit) : nvrtc(toolkit) {}
  CUlibrary of(const CudaDriver& driver, const std::shared_ptr<const Compiled>& compiled) {
    std::lock_guard lock(mutex_);
    CUlibrary& library = all_[compiled];
    if (!library) check_driver(driver, driver.cuLibraryLoadData(&library, compiled->cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    return library;
  }
  Nvrtc nvrtc;

 private:
  std::mutex mutex_;
  std::map<std::shared_ptr<const Compiled>, CUlibrary> all_;
};

/// Of one thread.
class DriverFunction : public GpuFunction {
 public:
  /// `early`: the kernel waits for what stands before it itself.
  DriverFunction(const CudaDriver& driver, std::shared_ptr<Libraries> libraries, Nvrtc::Future compiled, std::string entry, CUdevice device, bool early)
      : driver_(driver), libraries_(std::move(libraries)), compiled_(std::move(compiled)), entry_(std::move(entry)), device_(device), early_(early) {}

  void load() override {
    if (kernel_) return;
    CUkernel kernel = nullptr;
    check_driver(driver_, driver_.cuLibraryGetKernel(&kernel, libraries_->of(driver_, compiled_.get()), entry_.c_str()), "cuLibraryGetKernel");
    // A kernel is brought to its device when it is first asked about: not while a stream is captured.
    int registers = 0;
    check_driver(driver_, driver_.cuKernelGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device_), "cuKernelGetAttribute");
    kernel_ = kernel;
  }

  void launch(Grid grid, std::span<const std::uint64_t> words, void* stream) override {
    load();
    if (grid.shared > allowed_) {
      check_driver(driver_, driver_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, grid.shared, kernel_, device_), "cuKernelSetAttribute");
      allowed_ = grid.shared;
    }
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(grid.blocks);
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = static_cast<unsigned>(grid.threads);
    config.sharedMemBytes = static_cast<unsigned>(grid.shared);
    config.hStream = static_cast<CUstream>(stream);
    CUlaunchAttribute early{};
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    if (early_) config.attrs = &early, config.numAttrs = 1;
    void* parameters[] = {const_cast<std::uint64_t*>(words.data())};
    check_driver(driver_, driver_.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), parameters, nullptr), "cuLaunchKernelEx");
  }

 private:
  const CudaDriver& driver_;
  std::shared_ptr<Libraries> libraries_;
  Nvrtc::Future compiled_;
  std::string entry_;
  CUkernel kernel_ = nullptr;
  CUdevice device_;
  bool early_;
  int allowed_ = 0;  // bytes of shared memory that a launch may ask for
};

class DriverCode : public GpuCode {
 public:
  explicit DriverCode(const std::shared_ptr<CudaToolkit>& toolkit) : toolkit_(toolkit), libraries_(std::make_shared<Libraries>(toolkit)) {}

 private:
  std::shared_ptr<GpuFunction> make(const std::string& source, const std::string& entry, std::size_t) override {
    const CudaDriver& driver = toolkit_->driver();
    const CUdevice on = device();
    int major = 0, minor = 0;
    check_driver(driver, driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, on), "cuDeviceGetAttribute");
    check_driver(driver, driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, on), "cuDeviceGetAttribute");
    return std::make_shared<DriverFunction>(driver, libraries_, libraries_->nvrtc.begin(source, fmt::format("sm_{}{}", major, minor)), entry, on, major >= 9 && waits(source, entry));
  }
  CUdevice device() const override {
    CUdevice device = 0;
    check_driver(toolkit_->driver(), toolkit_->driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
    return device;
  }

  std::shared_ptr<CudaToolkit> toolkit_;
  std::shared_ptr<Libraries> libraries_;
};

}  // namespace

GpuCodeRef driver_code(std::shared_ptr<CudaToolkit> toolkit) { return std::make_shared<DriverCode>(toolkit); }

}  // namespace belfry
