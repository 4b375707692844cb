// Workspaces of NVIDIA's libraries, on the fake driver: aligned as they ask for, wherever a plan puts the scratch, and inside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/build.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>

#include "fake_gpus.h"
#include "files.h"
#include "says.h"

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

/// Algorithms are engines of the kernel: a plan may name one.
TEST_F(Workspaces, products_run_by_the_algorithm_that_a_plan_names) {
  const Attributes attributes = {{"equation", std::string()}};
  KernelRequest r;
  r.op = "matmul";
  r.attributes = &attributes;
  r.inputs = {{f32, {4, 8}}, {f32, {8, 4}}};
  r.outputs = {{f32, {4, 4}}};
  r.wanted = {true};
  KernelTable table;
  for (Kernel& k : matmul_cuda(toolkit)) table.add(std::move(k));
  device->enter();
  const std::vector<std::string> names = table.engines("cublas_lt_matmul", r);
  ASSERT_EQ(names, (std::vector<std::string>{"algo60{tile=0,stages=0,splits=0,swizzle=0,custom=0,inner=0,cluster=0}", "algo61{tile=0,stages=0,splits=0,swizzle=0,custom=0,inner=0,cluster=0}",
                                             "algo62{tile=0,stages=0,splits=0,swizzle=0,custom=0,inner=0,cluster=0}"}));
  auto by = [&](const std::string& name) {
    Kernel named = table.all()[0];
    named.prepare = [&table, name](const KernelRequest& request) { return table.prepare(name, request, {cublas_lt::kScratchBytes, false}); };
    run(named, r);
    return function<std::uint64_t()>("fake_cublas_lt_algorithm")();
  };
  EXPECT_EQ(by("cublas_lt_matmul"), 60u);
  EXPECT_EQ(by("cublas_lt_matmul@" + names[2]), 62u);
  EXPECT_THAT([&] { table.prepare("cublas_lt_matmul@algo7{}", r, {cublas_lt::kScratchBytes, false}); },
              testing::Throws<DeviceError>(testing::Property(&DeviceError::what, testing::HasSubstr("cuBLASLt does not name the algorithm algo7{} for it here; derive the plan anew"))));
  // More products than one have none to choose among.
  const Attributes apart = {{"equation", std::string("bqhd,bkhd->bhqk")}};
  r.attributes = &apart;
  r.inputs = {{f32, {2, 3, 2, 4}}, {f32, {2, 5, 2, 4}}};
  r.outputs = {{f32, {2, 2, 3, 5}}};
  EXPECT_EQ(table.engines("cublas_lt_matmul", r), std::vector<std::string>());
  EXPECT_TRUE(says([&] { table.prepare("cublas_lt_matmul@" + names[0], r, {cublas_lt::kScratchBytes, false}); }, {"here it is more than one product"}));
}

/// The first product is added to what else there is, where there is something, each further one to what stands in y.
TEST_F(Workspaces, products_are_added_to_another_value_and_to_each_other) {
  KernelTable table;
  for (Kernel& k : matmul_cuda(toolkit)) table.add(std::move(k));
  device->enter();
  auto added = [&](bool other, int products, const std::string& algorithm = "") {
    Graph g(std::make_shared<const OpSet>(standard_ops()), "sum");
    auto input = [&](const std::string& name, Shape shape) { return g.add(kInput, {}, {{"dtype", f32}, {"shape", std::move(shape)}}, name); };
    std::vector<Value> terms;
    for (int k = 0; k < products; ++k) terms.push_back(matmul(input("a" + std::to_string(k), {kBatch, 8}), input("b" + std::to_string(k), {8, 4})));
    if (other) terms.push_back(input("x", {kBatch, 4}));
    add_n(terms);
    const FusionGroup group = find_gpu_groups(g).at(0);
    const Attributes attributes;
    KernelRequest r;
    r.op = group.kind, r.attributes = &attributes, r.wanted = {true};
    for (int k = 0; k < products; ++k) r.inputs.insert(r.inputs.end(), {{f32, {4, 8}}, {f32, {8, 4}}});
    if (other) r.inputs.push_back({f32, {4, 4}});
    r.outputs = {{f32, {4, 4}}};
    describe_members(g, group, r);
    const std::vector<std::string> names = table.engines("cublas_lt_matmul_add", r);
    EXPECT_EQ(names.size(), 3u);
    const auto kernel = table.prepare("cublas_lt_matmul_add" + (algorithm.empty() ? "" : "@" + names[2]), r, {cublas_lt::kScratchBytes, false});
    auto queue = device->queue(0);
    Arena scratch = device->allocate(cublas_lt::kScratchBytes, "gpu:0"), data = device->allocate(4096, "gpu:0");
    Arguments a;
    a.inputs.assign(r.inputs.size(), data.at(0));
    if (other) a.inputs.back() = data.at(1024);
    a.outputs = {data.at(2048)};
    a.scratch = scratch.at(0), a.stream = queue->stream(), a.queue = queue.get();
    kernel->launch(a);
    queue->finish();
    const auto* to = function<const std::byte*()>("fake_cublas_lt_added")();
    return to ? std::optional(to - data.at(0)) : std::nullopt;
  };
  EXPECT_EQ(added(true, 1), 1024);
  EXPECT_EQ(added(true, 2), 2048);
  EXPECT_EQ(added(false, 3), 2048);
  EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cublasLtMatmul"), 6);
  added(true, 2, "the last");
  EXPECT_EQ(function<std::uint64_t()>("fake_cublas_lt_algorithm")(), 62u);
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

/// Of windows that are unfolded, a part of the images after the other: each product beside its rows, and of filters added to those before.
TEST_F(Workspaces, of_unfolded_windows_lie_behind_their_rows) {
  struct Code : GpuCode {
    struct Function : GpuFunction {
      void launch(Grid, std::span<const std::uint64_t> words, void*) override { addresses.push_back(words[0]), addresses.push_back(words[1]); }
      std::vector<std::uint64_t> addresses;
    };
    std::shared_ptr<GpuFunction> make(const std::string&, const std::string&, std::size_t) override { return all; }
    std::shared_ptr<Function> all = std::make_shared<Function>();
  };
  const auto code = std::make_shared<Code>();
  const Attributes attributes = {{"strides", Integers{1, 1}}, {"padding", std::string("same")}, {"dilations", Integers{1, 1}}, {"groups", std::int64_t{1}}};
  const LocalType x{f32, {2, 128, 128, 64}}, filter{f32, {3, 3, 64, 2}}, y{f32, {2, 128, 128, 2}};  // 37.7 MB of windows an image
  KernelTable table;
  for (Kernel& k : conv2d_cuda(toolkit, code)) table.add(std::move(k));
  device->enter();
  auto queue = device->queue(0);
  Arena data = device->allocate(x.bytes() + y.bytes() + filter.bytes(), "gpu:0");
  std::byte *of_x = data.at(0), *of_y = data.at(x.bytes()), *of_filter = data.at(x.bytes() + y.bytes());
  struct Direction {
    std::string op;
    std::vector<LocalType> inputs;
    LocalType output;
    Arguments at;
    bool adds;
  };
  for (Direction& d : std::vector<Direction>{{"conv2d", {x, filter}, y, {{of_x, of_filter}, {of_y}}, false}, {"conv2d_input_gradient", {y, filter, x}, x, {{of_y, of_filter, nullptr}, {of_x}}, false}, {"conv2d_filter_gradient", {x, y, filter}, filter, {{of_x, of_y, nullptr}, {of_filter}}, true}}) {
    KernelRequest r;
    r.op = d.op, r.attributes = &attributes, r.inputs = d.inputs, r.outputs = {d.output}, r.wanted = {true};
    const std::string name = "cudnn_conv2d@unfolded_algo62{tile=0,stages=0,splits=0,swizzle=0,custom=0,inner=0,cluster=0}";
    const Support s = table.support(name, r);
    if (!s.ok) GTEST_SKIP() << s.reason;
    EXPECT_GT(s.scratch_bytes, table.support("cudnn_conv2d", r).scratch_bytes + 37'000'000) << d.op;
    const auto kernel = table.prepare(name, r, {s.scratch_bytes, false});
    Arena scratch = device->allocate(64 + s.scratch_bytes, "gpu:0");
    d.at.scratch = scratch.at(64), d.at.stream = queue->stream(), d.at.queue = queue.get();
    code->all->addresses.clear();
    const int before = function<fake_cuda::Calls>("fake_cuda_calls")("cublasLtMatmul");
    EXPECT_NO_THROW(kernel->launch(d.at)) << d.op;
    queue->finish();
    EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cublasLtMatmul") - before, 2) << d.op;
    EXPECT_EQ(function<std::uint64_t()>("fake_cublas_lt_algorithm")(), 62u) << d.op;
    EXPECT_EQ(function<const std::byte*()>("fake_cublas_lt_added")(), d.adds ? of_filter : nullptr) << d.op;
    const auto at = [](const std::byte* p) { return reinterpret_cast<std::uint64_t>(p); };
    const std::uint64_t rows = at(scratch.at(256)), first = at(of_x), second = at(of_x + x.bytes() / 2);
    EXPECT_EQ(code->all->addresses, d.op == "conv2d_input_gradient" ? (std::vector{rows, first, rows, second}) : (std::vector{first, rows, second, rows})) << d.op;
    r.inputs[0].dtype = r.inputs[1].dtype = r.outputs[0].dtype = bf16;
    EXPECT_TRUE(says([&] { table.prepare(name, r, {s.scratch_bytes, false}); }, {"the plan names the engine unfolded_algo62", "derive the plan anew"})) << d.op;
  }
}

}  // namespace
}  // namespace belfry::test
