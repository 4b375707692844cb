// Texts become code without a GPU: NVRTC and its cache; and are launched by the driver, here the fake one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>
#include <belfry/ops/cuda_kernels.h>

#include "fake_gpus.h"
#include "no_threads.h"

namespace belfry::test {
namespace {

using testing::HasSubstr;

constexpr const char* kTwice = R"(struct Args { const float* x; float* y; long long n; };
extern "C" __global__ void twice(const Args a) { for (long long i = threadIdx.x; i < a.n; i += blockDim.x) a.y[i] = a.x[i] * 2.0f + 1.0f; })";

/// On the fake driver, with a cache of its own; without NVRTC it skips.
class GeneratedCode : public FakeGpus {
 public:
  ~GeneratedCode() override { std::filesystem::remove_all(folder); }

 protected:
  GeneratedCode() : folder(std::filesystem::temp_directory_path() / ("belfry_generated_code." + std::to_string(getpid()))) { environment.set("BELFRY_CACHE", folder.string()); }
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "NVRTC's own memory is not what is watched";
#endif
    try {
      toolkit->library(CudaLibrary::nvrtc);
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    std::error_code none;  // a folder is made for the first file
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) out.push_back(entry.path());
    return out;
  }
  std::filesystem::path folder;
  std::shared_ptr<CudaToolkit> toolkit = std::make_shared<CudaToolkit>();
};

TEST_F(GeneratedCode, is_compiled_once_and_kept) {
  Nvrtc first(toolkit);
  auto made = first.compile(kTwice, "sm_90");
  EXPECT_GT(made->registers, 0);
  EXPECT_EQ(made->spilled, 0);
  EXPECT_THAT(made->cubin.substr(0, 4), testing::StrEq("\x7F" "ELF"));
  EXPECT_EQ(first.compile(kTwice, "sm_90"), made);
  first.compile(kTwice, "sm_80");
  EXPECT_EQ(first.compiled(), 2);
  ASSERT_EQ(files().size(), 2u);

  Nvrtc second(toolkit);
  auto read = second.compile(kTwice, "sm_90");
  EXPECT_EQ(second.compiled(), 0);
  EXPECT_EQ(read->cubin, made->cubin);
  EXPECT_EQ(read->registers, made->registers);
}

TEST_F(GeneratedCode, is_known_by_the_build_of_nvrtc) { EXPECT_THAT(Nvrtc(toolkit).version(), testing::ContainsRegex("^13\\.[0-9]+ [0-9a-f]{32}")); }

TEST_F(GeneratedCode, is_made_anew_where_the_kept_file_is_damaged) {
  auto made = Nvrtc(toolkit).compile(kTwice, "sm_90");
  ASSERT_EQ(files().size(), 1u);
  auto size = std::filesystem::file_size(files()[0]);
  for (auto damage : {std::uintmax_t{0}, std::uintmax_t{20}, size / 2, size - 1}) {
    std::fstream file(files()[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(damage));
    char was = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(damage));
    file.put(static_cast<char>(was ^ 1));
    file.close();
    Nvrtc again(toolkit);
    EXPECT_EQ(again.compile(kTwice, "sm_90")->cubin, made->cubin) << "byte " << damage;
    EXPECT_EQ(again.compiled(), 1) << "byte " << damage;
  }
  std::filesystem::resize_file(files()[0], 10);
  EXPECT_EQ(Nvrtc(toolkit).compile(kTwice, "sm_90")->cubin, made->cubin);
  EXPECT_EQ(files().size(), 1u) << "a file beside it is left";
}

TEST_F(GeneratedCode, that_does_not_compile_gives_the_log) {
  try {
    Nvrtc(toolkit).compile("extern \"C\" __global__ void f() { nonsense(); }", "sm_90");
    FAIL() << "compiled";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("identifier \"nonsense\" is undefined"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "what failed is kept";
}

TEST_F(GeneratedCode, is_launched_with_its_words_on_the_stream_it_is_given) {
  add_kernel("twice", {24}, [](const fake_cuda::Launch& launch, void** arguments) {
    struct Args { const float* x; float* y; long long n; };
    const Args& a = *static_cast<const Args*>(arguments[0]);
    EXPECT_EQ(launch.grid[0], 3u);
    EXPECT_EQ(launch.block[0], 128u);
    for (long long i = 0; i < a.n; ++i) a.y[i] = a.x[i] * 2 + 1;
  });
  start();
  auto code = driver_code(toolkit);
  auto function = code->function(kTwice, "twice", 3);
  CUstream s = stream();
  std::vector<float> x = {1, 2, 3};
  CUdeviceptr from = allocated(12), to = allocated(12);
  d.cuMemcpyAsync(from, reinterpret_cast<std::uintptr_t>(x.data()), 12, s);
  std::vector<std::uint64_t> words = {from, to, 3};
  function->launch({3, 128}, words, s);
  words = {0, 0, 0};  // they were taken when the launch returned
  d.cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(x.data()), to, 12, s);
  ASSERT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
  EXPECT_EQ(x, (std::vector<float>{3, 5, 7}));
}

std::string numbered(int i) { return kTwice + std::string("\n// ") + std::to_string(i); }

TEST_F(GeneratedCode, is_the_same_whether_many_are_compiled_at_once_or_one) {
  Nvrtc together(toolkit, folder / "together"), apart(toolkit, folder / "apart");
  std::vector<Nvrtc::Future> begun;
  for (int i = 0; i < 12; ++i) begun.push_back(together.begin(numbered(i % 6), i % 2 ? "sm_80" : "sm_90"));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(begun[static_cast<std::size_t>(i)].get()->cubin, apart.compile(numbered(i % 6), i % 2 ? "sm_80" : "sm_90")->cubin) << i;
    EXPECT_EQ(begun[static_cast<std::size_t>(i)].get(), begun[static_cast<std::size_t>(i % 6)].get()) << "compiled twice";
  }
  EXPECT_EQ(together.compiled(), 6);
  EXPECT_EQ(together.compile(numbered(7), "sm_90")->registers, begun[0].get()->registers) << "once all threads have ended";
}

TEST_F(GeneratedCode, is_compiled_by_who_asks_where_no_thread_starts) {
  Nvrtc alone(toolkit, folder / "alone"), apart(toolkit, folder / "apart");
  const auto made = apart.compile(numbered(0), "sm_90");
  const NoThreads none;
  EXPECT_EQ(alone.begin(numbered(0), "sm_90").get()->cubin, made->cubin);
  EXPECT_EQ(alone.compiled(), 1);
}

TEST_F(GeneratedCode, that_nobody_waits_for_is_dropped) {
  std::vector<Nvrtc::Future> begun;
  {
    Nvrtc nvrtc(toolkit);
    for (int i = 0; i < 400; ++i) begun.push_back(nvrtc.begin(numbered(i), "sm_90"));
  }
  int dropped = 0;
  for (const Nvrtc::Future& f : begun) try {
      f.get();
    } catch (const std::future_error&) {
      ++dropped;
    }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(static_cast<int>(files().size()) + dropped, 400);
}

TEST_F(GeneratedCode, is_waited_for_by_the_thread_that_asked) {
  add_kernel("twice", {24}, [](const fake_cuda::Launch&, void**) {});
  start();
  auto code = driver_code(toolkit);
  auto thrice = code->function(kTwice, "thrice", 3), nonsense = code->function("extern \"C\" __global__ void f() { nonsense(); }", "f", 0);
  EXPECT_NO_THROW(std::async(std::launch::async, [&] {
    ASSERT_EQ(d.cuCtxSetCurrent(context), CUDA_SUCCESS);
    auto twice = code->function(kTwice, "twice", 3);
    code->load();
    twice->launch({1, 32}, std::vector<std::uint64_t>(3), stream());
  }).get());
  EXPECT_THAT([&] { code->load(); }, testing::ThrowsMessage<DeviceError>(HasSubstr("cuLibraryGetKernel")));
  EXPECT_THAT([&] { nonsense->launch({1, 32}, {}, stream()); }, testing::ThrowsMessage<DeviceError>(HasSubstr("identifier \"nonsense\" is undefined")));
  EXPECT_THAT([&] { code->load(); }, testing::ThrowsMessage<DeviceError>(HasSubstr("cuLibraryGetKernel"))) << "it was not loaded";
  thrice.reset(), nonsense.reset();
  EXPECT_NO_THROW(code->load()) << "nobody has it";
  const KernelTable table = cuda_kernels(toolkit);
  auto asked = [&] { return function<fake_cuda::Calls>("fake_cuda_calls")("cuCtxGetDevice"); };
  const int before = asked();
  table.finish();
  EXPECT_EQ(asked(), before + 1) << "the kernels' table does not load";
}

/// What is launched in a recorded segment must be there before: the driver loads nothing then.
TEST_F(GeneratedCode, that_could_not_be_loaded_is_loaded_when_asked_again) {
  for (const char* call : {"cuLibraryLoadData", "cuKernelGetAttribute"}) {
    environment.set("FAKE_CUDA_FAIL", std::string(call) + ":1:2");
    start();
    add_kernel("twice", {24}, [](const fake_cuda::Launch&, void**) {});
    auto code = driver_code(toolkit);
    const std::shared_ptr<GpuFunction> all[] = {code->function(numbered(0), "twice", 3), code->function(numbered(1), "twice", 3)};
    EXPECT_THAT([&] { code->load(); }, testing::ThrowsMessage<DeviceError>(HasSubstr(call)));
    EXPECT_NO_THROW(code->load());
    CUstream s = stream();
    CUgraph graph = nullptr;
    ASSERT_EQ(d.cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    for (const auto& f : all) f->launch({1, 32}, std::vector<std::uint64_t>(3), s);
    ASSERT_EQ(d.cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EXPECT_EQ(function<fake_cuda::Calls>("fake_cuda_calls")("cuKernelGetAttribute"), call == std::string("cuLibraryLoadData") ? 2 : 3);
    d.cuGraphDestroy(graph);
  }
}

/// Only what waits by itself may be launched before what stands before it has ended, and only where a GPU can.
TEST_F(GeneratedCode, is_launched_early_if_it_waits) {
  static std::vector<bool> early;
  for (const char* major : {"8", "9"}) {
    early.clear();
    environment.set("FAKE_CUDA_CAPABILITY", std::string(major) + ".0");
    start();
    add_kernel("twice", {24}, [](const fake_cuda::Launch& launch, void**) { early.push_back(launch.early); });
    CUstream s = stream();
    const std::string plain = kTwice, own = "extern \"C\" __global__", waiting = "#define KERNEL " + own + "\n" + std::string(plain).replace(plain.find(own), own.size(), "KERNEL");
    for (const std::string& source : {plain, waiting}) driver_code(toolkit)->function(source, "twice", 3)->launch({1, 32}, std::vector<std::uint64_t>(3), s);
    ASSERT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
    EXPECT_EQ(early, (std::vector<bool>{false, *major == '9'}));
    EXPECT_EQ(belfry::waiting(plain).find("{ wait_for_others();"), std::string::npos);
    EXPECT_THAT(belfry::waiting(waiting), testing::AllOf(HasSubstr("griddepcontrol.wait;"), HasSubstr("KERNEL void twice(const Args a) { wait_for_others();")));
  }
}

TEST_F(GeneratedCode, is_launched_with_the_shared_memory_it_asks_for) {
  static std::vector<unsigned> got;
  got.clear();
  add_kernel("twice", {24}, [](const fake_cuda::Launch& launch, void**) { got.push_back(launch.shared_bytes); });
  start();
  auto function = driver_code(toolkit)->function(kTwice, "twice", 3);
  CUstream s = stream();
  const std::vector<std::uint64_t> words(3);
  for (const int bytes : {0, 96 * 1024, 64 * 1024}) function->launch({1, 256, bytes}, words, s);
  ASSERT_EQ(d.cuStreamSynchronize(s), CUDA_SUCCESS);
  EXPECT_EQ(got, (std::vector<unsigned>{0, 96 * 1024, 64 * 1024}));
  EXPECT_THROW(function->launch({1, 256, 100 * 1024}, words, s), DeviceError);
}

}  // namespace
}  // namespace belfry::test
