#include <fmt/format.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>

namespace belfry {
namespace {

class DriverFunction : public GpuFunction {
 public:
  /// `early`: the kernel waits for what stands before it itself.
  DriverFunction(const CudaDriver& driver, CUkernel kernel, CUdevice device, bool early) : driver_(driver), kernel_(kernel), device_(device), early_(early) {}

  void launch(Grid grid, std::span<const std::uint64_t> words, void* stream) override {
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
  CUkernel kernel_;
  CUdevice device_;
  bool early_;
  int allowed_ = 0;  // bytes of shared memory that a launch may ask for
};

/// Libraries are of no context: one serves all devices of an architecture. They stay loaded.
class DriverCode : public GpuCode {
 public:
  explicit DriverCode(std::shared_ptr<CudaToolkit> toolkit) : toolkit_(toolkit), nvrtc_(std::move(toolkit)) {}

  std::shared_ptr<GpuFunction> function(const std::string& source, const std::string& entry, std::size_t) override {
    const CudaDriver& driver = toolkit_->driver();
    CUdevice device = 0;
    int major = 0, minor = 0;
    check_driver(driver, driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
    check_driver(driver, driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
    check_driver(driver, driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute");
    std::shared_ptr<const Compiled> compiled = nvrtc_.compile(source, fmt::format("sm_{}{}", major, minor));
    std::lock_guard lock(mutex_);
    CUlibrary& library = libraries_[compiled];
    if (!library) check_driver(driver, driver.cuLibraryLoadData(&library, compiled->cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    CUkernel kernel = nullptr;
    check_driver(driver, driver.cuLibraryGetKernel(&kernel, library, entry.c_str()), "cuLibraryGetKernel");
    // A kernel is brought to its device when it is first asked about: not while a stream is captured.
    int registers = 0;
    driver.cuKernelGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device);
    return std::make_shared<DriverFunction>(driver, kernel, device, major >= 9 && waits(source, entry));
  }

 private:
  std::shared_ptr<CudaToolkit> toolkit_;
  Nvrtc nvrtc_;
  std::mutex mutex_;
  std::map<std::shared_ptr<const Compiled>, CUlibrary> libraries_;
};

}  // namespace

GpuCodeRef driver_code(std::shared_ptr<CudaToolkit> toolkit) { return std::make_shared<DriverCode>(std::move(toolkit)); }

}  // namespace belfry
