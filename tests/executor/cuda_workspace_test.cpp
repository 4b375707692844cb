// Workspaces of NVIDIA's libraries, on the fake driver: aligned as they ask for, wherever a plan puts the scratch, and inside it.
#include <gtest/gtest.h>

#include <filesystem>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>
#include <belfry/ops/cuda_kernels.h>

#include "fake_gpus.h"
#include "files.h"

namespace belfry::test {
namespace {

class Workspaces : public FakeGpus {
 protected:
  Workspaces() {
    std::filesystem::create_symlink(BELFRY_FAKE_CUDA, folder_ / "libcublasLt.so.13");  // the same library, not a copy with streams of its own
    environment.set("BELFRY_CUDA_PATH", folder_.path().string());
  }
  void SetUp() override {
    if (!cublas_lt::built()) GTEST_SKIP() << "Belfry was built without cuBLASLt's header";
    start();
    toolkit = std::make_shared<CudaToolkit>();
    device = open_cuda_device(toolkit, {0, "gpu", 0, -1});
  }
  /// With the scratch at every place where a plan may put it, and nothing behind it.
  void run(const Kernel& kernel, const KernelRequest& r) {
    device->enter();
    auto prepared = kernel.prepare(r);
    const std::int64_t scratch = kernel.supports(r).scratch_bytes;
    ASSERT_GT(scratch, 0);
    auto queue = device->queue(0);
    for (std::int64_t at : {0, 64, 128, 192}) {
      Arena arena = device->allocate(at + scratch, "gpu:0"), data = device->allocate(1024, "gpu:0");
      Arguments a;
      a.inputs.assign(r.inputs.size(), data.at(0));
      a.outputs.assign(1, data.at(512));
      a.scratch = arena.at(at);
      a.stream = queue->stream();
      a.queue = queue.get();
      EXPECT_NO_THROW(prepared->launch(a)) << kernel.name << ", scratch at " << at;
      queue->finish();
    }
  }

  std::shared_ptr<CudaToolkit> toolkit;
  std::shared_ptr<Device> device;

 private:
  Folder folder_;
};

TEST_F(Workspaces, of_products_are_aligned) {
  const Attributes attributes = {{"equation", std::string()}};
  KernelRequest r;
  r.op = "matmul";
  r.attributes = &attributes;
  r.inputs = {{f32, {4, 8}}, {f32, {8, 4}}};
  r.outputs = {{f32, {4, 4}}};
  r.wanted = {true};
  run(matmul_cuda(toolkit).at(0), r);
  EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cublasLtMatmul"), 4);
}

/// A convolution of one tap is a product; its sequence is aligned as a whole.
TEST_F(Workspaces, of_sequences_are_aligned) {
  const Attributes attributes = {{"strides", Integers{1, 1}}, {"padding", std::string("valid")}, {"dilations", Integers{1, 1}}, {"groups", std::int64_t{1}}};
  KernelRequest r;
  r.op = "conv2d";
  r.attributes = &attributes;
  r.inputs = {{f32, {1, 2, 2, 4}}, {f32, {1, 1, 4, 4}}};
  r.outputs = {{f32, {1, 2, 2, 4}}};
  r.wanted = {true};
  const Kernel kernel = conv2d_cuda(toolkit, {}).at(0);
  if (const Support s = kernel.supports(r); !s.ok) GTEST_SKIP() << s.reason;
  run(kernel, r);
  EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cublasLtMatmul"), 4);
}

}  // namespace
}  // namespace belfry::test
