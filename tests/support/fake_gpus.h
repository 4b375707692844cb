// A test on the fake driver: its settings, the driver's table, a current context.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include <belfry/executor/device/cuda/driver_internal.h>

#include "environment.h"
#include "fake_cuda/fake_cuda.h"

namespace belfry::test {

class FakeGpus : public testing::Test {
 public:
  ~FakeGpus() override {
    expect_no_races();
    reset();
  }

 protected:
  FakeGpus() {
    environment.set("BELFRY_CUDA_DRIVER", BELFRY_FAKE_CUDA);
    environment.unset("CUDA_VISIBLE_DEVICES");
    library_ = dlopen(BELFRY_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library_) throw std::runtime_error(dlerror());
    opened = open_driver();
  }

  /// From the beginning: settings are read anew, the context of the first GPU is current.
  void start(int seed = 1) {
    expect_no_races();
    reset();
    environment.set("FAKE_CUDA_SEED", std::to_string(seed));
    ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSetCurrent(context), CUDA_SUCCESS);
  }
  void reset() { function<fake_cuda::Reset>("fake_cuda_reset")(); }
  void add_kernel(const char* name, std::initializer_list<std::size_t> sizes, fake_cuda::Kernel kernel) {
    function<fake_cuda::AddKernel>("fake_cuda_add_kernel")(name, sizes.begin(), sizes.size(), kernel);
  }
  /// A line each, since the last start. A test that wants some says so.
  std::string races() { return function<fake_cuda::Races>("fake_cuda_races")(); }
  std::size_t used(int device) { return function<fake_cuda::Used>("fake_cuda_used")(device); }

  CUdeviceptr allocated(std::size_t bytes) {
    CUdeviceptr p = 0;
    EXPECT_EQ(d.cuMemAlloc(&p, bytes), CUDA_SUCCESS);
    return p;
  }
  CUstream stream() {
    CUstream s = nullptr;
    EXPECT_EQ(d.cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return s;
  }
  CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent e = nullptr;
    EXPECT_EQ(d.cuEventCreate(&e, flags), CUDA_SUCCESS);
    return e;
  }
  CUkernel kernel(const char* name) {
    CUlibrary library = nullptr;
    CUkernel k = nullptr;
    EXPECT_EQ(d.cuLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLibraryGetKernel(&k, library, name), CUDA_SUCCESS);
    return k;
  }
  CUresult launch(CUkernel k, CUstream s, void** arguments) {
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = s;
    return d.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(k), arguments, nullptr);
  }

  template <class F>
  F* function(const char* name) {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }

  void expect_no_races() {
    if (!may_race) {
      EXPECT_EQ(races(), "");
    }
  }

  bool may_race = false;
  Environment environment;
  OpenedDriver opened;
  const CudaDriver& d = opened.table;
  CUcontext context = nullptr;

 private:
  void* library_ = nullptr;
};

}  // namespace belfry::test
