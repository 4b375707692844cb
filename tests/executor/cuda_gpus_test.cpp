// What belfry devices is told of GPUs, driver and libraries, and what it is told is missing.
#include <dlfcn.h>
#include <sys/stat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <belfry/executor/device/cuda/backend.h>
#include <belfry/executor/device/cuda/gpus_internal.h>
#include <belfry/executor/device/library_file.h>
#include <belfry/graph/error.h>

#include "fake_gpus.h"
#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A folder that holds the fake under the names of NVIDIA's libraries.
class FakeLibraries {
 public:
  explicit FakeLibraries(std::initializer_list<const char*> names = {"libcublasLt.so.13", "libnvrtc.so.13", "libcudnn.so.9", "libcudnn_graph.so.9", "libnccl.so.2", "libnvidia-ml.so.1"}) {
    for (const char* name : names) std::filesystem::copy_file(BELFRY_FAKE_CUDA, folder_ / name);
  }
  CudaLibraries libraries() const { return CudaLibraries({folder_.path()}); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  Folder folder_;
};

class Gpus : public FakeGpus {
 protected:
  CudaFacts probe() {
    CudaLibraries l = fakes.libraries();
    return probe_gpus(open_driver(), l);
  }
  Missing missing(const char* what) {
    CudaFacts facts = probe();
    EXPECT_TRUE(facts.gpus.empty());
    const Missing* m = facts.find_missing(what);
    return m ? *m : Missing{"", "not missing", ""};
  }
  FakeLibraries fakes;
};

TEST_F(Gpus, the_table_is_complete) {
  std::vector<std::string> symbols = driver_symbols();
  EXPECT_EQ(std::set<std::string>(symbols.begin(), symbols.end()).size(), static_cast<std::size_t>(kCudaDriverEntries));
  for (const char* renamed : {"cuMemAlloc_v2", "cuStreamWaitValue64_v2", "cuStreamGetCaptureInfo_v3", "cuGraphInstantiateWithFlags"}) EXPECT_THAT(symbols, testing::Contains(renamed));
  EXPECT_TRUE(opened.loaded);
  EXPECT_THAT(opened.absent, ElementsAre());
}

TEST_F(Gpus, the_toolkit_knows_every_entry) {
  const char* stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub)) GTEST_SKIP() << "there is no " << stub;
  environment.set("BELFRY_CUDA_DRIVER", stub);
  EXPECT_THAT(open_driver().absent, ElementsAre());
  EXPECT_THAT(probe().missing.at(0).what + probe().missing.at(0).why, HasSubstr("CUDA_ERROR_STUB_LIBRARY"));
}

TEST_F(Gpus, no_driver) {
  environment.set("BELFRY_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  Missing m = missing("CUDA driver");
  EXPECT_THAT(m.why, HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_THAT(m.way_out, HasSubstr("driver 580"));
}

TEST_F(Gpus, a_driver_without_the_functions) {
  environment.set("BELFRY_CUDA_DRIVER", "libz.so.1");
  EXPECT_THAT(missing("CUDA driver").why, HasSubstr("lacks 63 of 63 functions: cuInit, cuDriverGetVersion"));
}

TEST_F(Gpus, a_driver_that_is_too_old) {
  environment.set("FAKE_CUDA_DRIVER_VERSION", "12080");
  EXPECT_THAT(missing("CUDA driver").why, HasSubstr("knows CUDA 12.8 at most, and this build needs 13.0"));
}

TEST_F(Gpus, a_start_that_fails_is_told_by_name) {
  for (auto [code, name, way_out] : {std::tuple{"100", "CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi"}, {"803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "start the machine anew"},
                                     {"802", "CUDA_ERROR_SYSTEM_NOT_READY (802)", "nvidia-fabricmanager"}}) {
    environment.set("FAKE_CUDA_INIT", code);
    Missing m = missing("GPU");
    EXPECT_THAT(m.why, HasSubstr(name));
    EXPECT_THAT(m.way_out, HasSubstr(way_out));
  }
}

TEST_F(Gpus, none_visible_names_the_variable) {
  environment.set("CUDA_VISIBLE_DEVICES", "-1");
  EXPECT_THAT(missing("GPU").way_out, HasSubstr("CUDA_VISIBLE_DEVICES is '-1'"));
}

TEST_F(Gpus, are_listed_with_their_facts) {
  environment.set("FAKE_CUDA_GPUS", "3");
  environment.set("FAKE_CUDA_NAME", "Fake H9");
  environment.set("FAKE_CUDA_MEMORY", "2147483648");
  CudaFacts facts = probe();
  EXPECT_TRUE(facts.missing.empty()) << facts.missing[0].why;
  EXPECT_EQ(facts.wanted, "13.0");
  EXPECT_EQ(facts.driver_cuda, "13.0");
  EXPECT_EQ(facts.driver_release, "580.65.06");
  ASSERT_EQ(facts.gpus.size(), 3u);
  const GpuFacts& g = facts.gpus[1];
  EXPECT_EQ(g.index, 1);
  EXPECT_EQ(g.name, "Fake H9");
  EXPECT_EQ(std::pair(g.major, g.minor), std::pair(9, 0));
  EXPECT_EQ(g.memory_bytes, std::int64_t{1} << 31);
  EXPECT_EQ(g.free_bytes, 3u << 28);
  EXPECT_EQ(g.pci, "0000:02:00.0");
  EXPECT_EQ(g.uuid, "GPU-f1f1f1f1-f1f1-f1f1-f1f1-f1f1f1f1f1f1");
  std::vector<std::string> kinds;
  for (const GpuLink& l : facts.links) kinds.push_back(std::to_string(l.from) + std::to_string(l.to) + l.kind);
  EXPECT_THAT(kinds, ElementsAre("01NVLink", "02PCIe", "12PCIe"));
}

TEST_F(Gpus, visible_ones_alone_are_listed) {
  environment.set("FAKE_CUDA_GPUS", "3");
  environment.set("CUDA_VISIBLE_DEVICES", "2,0");
  CudaFacts facts = probe();
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].pci, "0000:03:00.0");
  EXPECT_EQ(facts.gpus[1].pci, "0000:01:00.0");
}

TEST_F(Gpus, without_nvml_the_driver_is_asked) {
  environment.set("FAKE_NVML_INIT", "9");
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_MEMORY", "1048576");
  CudaFacts facts = probe();
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].free_bytes, 1048576);
  EXPECT_EQ(facts.links.at(0).kind, "peer");
  environment.set("FAKE_CUDA_PEER", "0");
  EXPECT_EQ(probe().links.at(0).kind, "host");
}

/// NVML speaks of the whole card.
TEST_F(Gpus, that_are_a_part_of_a_card_have_no_more_free_than_it) {
  environment.set("FAKE_CUDA_MEMORY", "1048576");
  for (const char* of_card : {"805306368", "4096"}) {
    environment.set("FAKE_NVML_FREE", of_card);
    EXPECT_EQ(probe().gpus.at(0).free_bytes, 1048576) << of_card;
  }
  environment.set("FAKE_CUDA_MEMORY", "1073000000");  // the whole card
  EXPECT_EQ(probe().gpus.at(0).free_bytes, 4096);
  environment.set("FAKE_NVML_FREE", "1073741824");
  EXPECT_EQ(probe().gpus.at(0).free_bytes, 1073000000);
  environment.set("FAKE_CUDA_MEMORY", "1048576");
  environment.set("FAKE_CUDA_FAIL", "cuMemGetInfo_v2:1:201");
  const CudaFacts facts = probe();
  EXPECT_EQ(facts.gpus.at(0).free_bytes, -1);
  EXPECT_EQ(facts.gpus[0].stops.what, "");
}

TEST_F(Gpus, a_query_that_fails_is_told_by_name) {
  environment.set("FAKE_CUDA_GPUS", "2");
  environment.set("FAKE_CUDA_FAIL", "cuDeviceTotalMem:2:214");
  const CudaFacts facts = probe();
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].stops.what, "");
  EXPECT_EQ(facts.gpus[1].stops.what, "gpu:1");
  EXPECT_THAT(facts.gpus[1].stops.why, HasSubstr("cuDeviceTotalMem gives CUDA_ERROR_ECC_UNCORRECTABLE (214)"));
}

TEST_F(Gpus, that_the_driver_does_not_give_are_not_listed) {
  environment.set("FAKE_CUDA_GPUS", "3");
  environment.set("FAKE_CUDA_FAIL", "cuDeviceGet:2:101");
  const CudaFacts facts = probe();
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[1].index, 2);
  EXPECT_EQ(facts.gpus[1].pci, "0000:03:00.0");
  ASSERT_TRUE(facts.find_missing("gpu:1"));
  EXPECT_THAT(facts.find_missing("gpu:1")->why, HasSubstr("cuDeviceGet gives CUDA_ERROR_INVALID_DEVICE (101)"));
  ASSERT_EQ(facts.links.size(), 1u);
  EXPECT_EQ(std::pair(facts.links[0].from, facts.links[0].to), std::pair(0, 2));
}

TEST_F(Gpus, for_which_nothing_can_be_compiled_are_told_with_the_reason) {
  environment.set("FAKE_CUDA_CAPABILITY", "6.1");
  const Missing old = probe().gpus.at(0).stops;
  EXPECT_EQ(to_string(old), "gpu:0: compute capability 6.1 is below 7.5, the least that CUDA 13 compiles for; take a GPU of the Turing generation (2018) or a later one");
  environment.set("FAKE_CUDA_CAPABILITY", "13.2");
  const Missing later = probe().gpus.at(0).stops;
  EXPECT_EQ(later.why, "NVRTC 13.0 (" + fakes.path("libnvrtc.so.13") + ") compiles for compute capabilities 7.5 to 12.0, and not for 13.2");
  EXPECT_THAT(later.way_out, HasSubstr("pip install --upgrade nvidia-cuda-nvrtc"));
  environment.set("FAKE_NVRTC_ARCHS", "75,132");
  EXPECT_EQ(probe().gpus.at(0).stops.what, "");
  for (const char* known : {"7.5", "9.0", "12.0"}) {
    environment.unset("FAKE_NVRTC_ARCHS");
    environment.set("FAKE_CUDA_CAPABILITY", known);
    EXPECT_EQ(probe().gpus.at(0).stops.what, "") << known;
  }
}

// What NVRTC knows cannot be asked then, but what CUDA 13 has left out is known.
TEST(CudaLibraries, without_nvrtc_old_gpus_are_told_all_the_same) {
  FakeLibraries fakes;
  Environment environment;
  environment.set("BELFRY_CUDA_DRIVER", BELFRY_FAKE_CUDA);
  environment.unset("CUDA_VISIBLE_DEVICES");
  environment.set("FAKE_NVRTC_VERSION", "12080");
  for (auto [capability, stops] : {std::pair{"7.0", true}, {"7.5", false}, {"14.0", false}}) {
    environment.set("FAKE_CUDA_CAPABILITY", capability);
    CudaLibraries l = fakes.libraries();
    EXPECT_EQ(l.architectures(), std::vector<int>());
    EXPECT_EQ(!probe_gpus(open_driver(), l).gpus.at(0).stops.what.empty(), stops) << capability;
  }
}

TEST_F(Gpus, versions_of_libraries_are_told) {
  std::vector<std::string> told;
  for (const CudaLibraryFacts& l : probe().libraries) told.push_back(l.name + " " + l.version);
  EXPECT_THAT(told, ElementsAre("cuBLASLt 13.1.0", "NVRTC 13.0", "cuDNN 9.19.0", "NCCL 2.28.9", "NVML 1"));
}

// Where pip puts packages for one user: its advice is followed there.
TEST(CudaLibraries, are_looked_for_where_pip_installs_for_a_user) {
  Folder home, base;
  const std::string site = "lib/python3.12/site-packages/nvidia/nccl/lib";
  for (const auto& folder : {home / ".local" / site, base / site}) std::filesystem::create_directories(folder);
  Environment environment;
  environment.unset("BELFRY_CUDA_PATH");
  environment.unset("VIRTUAL_ENV");
  environment.unset("PYTHONUSERBASE");
  environment.set("HOME", home.path().string());
  EXPECT_EQ(cuda_folders().at(0), home / ".local" / site);
  environment.set("PYTHONUSERBASE", base.path().string());
  EXPECT_EQ(cuda_folders().at(0), base / site);
}

/// Whether the loader itself finds a library, so that its absence cannot be tried.
bool loader_finds(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr; }

TEST(CudaLibraries, that_are_not_found_are_told_with_the_places) {
  if (loader_finds("libcudnn.so.9")) GTEST_SKIP() << "the loader's cache holds libcudnn.so.9";
  Folder empty;
  CudaLibraries l({empty.path()});
  Missing m = l.missing(CudaLibrary::cudnn);
  EXPECT_THAT(m.why, HasSubstr("libcudnn.so.9 was not found; looked for in " + empty.path().string() + ", where the loader looks"));
  EXPECT_THAT(m.way_out, HasSubstr("pip install nvidia-cudnn-cu13"));
  EXPECT_TRUE(says<DeviceError>([&] { l.open(CudaLibrary::cudnn); }, {"cuDNN", "was not found"}));
}

TEST(CudaLibraries, of_another_major_version_are_told_with_their_path) {
  if (loader_finds("libcudnn.so.9")) GTEST_SKIP() << "the loader's cache holds libcudnn.so.9";
  FakeLibraries old({"libcudnn.so.8"});
  CudaLibraries l = old.libraries();
  EXPECT_THAT(l.missing(CudaLibrary::cudnn).why, HasSubstr("wrong version: " + old.path("libcudnn.so.8") + " was found, wanted is 9.x (libcudnn.so.9)"));
}

TEST(CudaLibraries, that_say_another_version_are_refused) {
  FakeLibraries fakes;
  Environment environment;
  environment.set("FAKE_CUDNN_VERSION", "80907");
  environment.set("FAKE_NCCL_VERSION", "22703");
  CudaLibraries l = fakes.libraries();
  EXPECT_EQ(l.missing(CudaLibrary::cudnn).why, "wrong version: " + fakes.path("libcudnn.so.9") + " is 8.9.7, wanted is 9.x");
  EXPECT_EQ(l.missing(CudaLibrary::nccl).why, "wrong version: " + fakes.path("libnccl.so.2") + " is 2.27.3, wanted is 2.28 or a later 2");
}

/// The loader maps such a file, and the process dies where it reads on.
TEST(CudaLibraries, that_are_cut_short_are_refused_unopened) {
  for (auto [which, name] : {std::pair{CudaLibrary::cublas_lt, "libcublasLt.so.13"}, {CudaLibrary::nvrtc, "libnvrtc.so.13"}, {CudaLibrary::cudnn, "libcudnn.so.9"}, {CudaLibrary::nccl, "libnccl.so.2"}}) {
    FakeLibraries fakes;
    std::filesystem::resize_file(fakes.path(name), 20000);
    CudaLibraries l = fakes.libraries();
    EXPECT_THAT(l.missing(which).why, HasSubstr(fakes.path(name) + " is cut short: it has 20000 bytes of ")) << name;
    EXPECT_THAT(l.missing(which).way_out, HasSubstr("pip install")) << name;
  }
  for (auto [which, name] : {std::pair{CudaLibrary::nvrtc, "libnvrtc-builtins.so.13.0"}, {CudaLibrary::cudnn, "libcudnn_graph.so.9"}, {CudaLibrary::cudnn, "libcudnn_ops.so.9"}}) {
    FakeLibraries fakes;
    std::filesystem::copy_file(fakes.path("libcudnn.so.9"), fakes.path(name), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(fakes.path(name), 20000);
    EXPECT_THAT(fakes.libraries().missing(which).why, HasSubstr(fakes.path(name) + " is cut short: it has 20000 bytes of ")) << name;
  }
  FakeLibraries fakes;
  std::filesystem::resize_file(fakes.path("libnccl.so.2"), 20000);
  Environment environment;
  environment.set("BELFRY_CUDA_DRIVER", fakes.path("libnccl.so.2"));
  EXPECT_THAT(open_driver().why, HasSubstr("is cut short"));
  EXPECT_EQ(library_flaw(fakes.path("libcudnn.so.9")), "");
  EXPECT_EQ(library_flaw("libc.so.6"), "") << "where the loader finds it is not known";
  const std::string pipe = fakes.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  environment.set("BELFRY_CUDA_DRIVER", pipe);
  EXPECT_EQ(open_driver().why, pipe + " is no regular file") << "whose other end nobody opens";
}

/// A shim of pyenv lies beside no packages.
TEST(CudaLibraries, are_looked_for_in_pyenvs_versions) {
  Folder root;
  const std::string site = "versions/3.12.1/lib/python3.12/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(root / site);
  std::filesystem::create_directories(root / "shims");
  write_text(root / "shims/python3", "#!/bin/sh\n");
  Environment environment;
  environment.unset("VIRTUAL_ENV");
  environment.unset("BELFRY_CUDA_PATH");
  environment.set("PYTHONUSERBASE", root / "nothing");
  environment.set("PATH", (root / "shims").string());
  EXPECT_EQ(cuda_folders().at(0), root / site);
}

// cuDNN asks the loader for it by a bare name, and gives no engine where that finds none.
TEST(CudaLibraries, nvrtc_is_opened_before_cudnn) {
  FakeLibraries fakes;
  CudaLibraries l = fakes.libraries();
  auto open_now = [&] { return dlopen(fakes.path("libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr; };
  l.facts(CudaLibrary::cudnn);
  EXPECT_FALSE(open_now());
  l.open(CudaLibrary::cudnn);
  EXPECT_TRUE(open_now());
}

// cuDNN aborts the process where it does not find cuBLASLt.
TEST(CudaLibraries, cudnn_is_never_opened_without_cublaslt) {
  FakeLibraries fakes({"libcudnn.so.9", "libcudnn_graph.so.9"});
  write_text(fakes.path("libcublasLt.so.13"), "no library");
  CudaLibraries l = fakes.libraries();
  EXPECT_TRUE(says<DeviceError>([&] { l.open(CudaLibrary::cudnn); }, {"cuDNN: it needs cuBLASLt", "libcublasLt.so.13 cannot be opened"}));
  EXPECT_THAT(l.missing(CudaLibrary::cudnn).why, HasSubstr("it needs cuBLASLt"));
}

TEST(CudaLibraries, cudnn_of_another_cuda_is_refused_where_its_cublaslt_is_not_found) {
  if (loader_finds("libcublasLt.so.12")) GTEST_SKIP() << "the loader's cache holds libcublasLt.so.12";
  FakeLibraries fakes;
  Environment environment;
  environment.set("FAKE_CUDNN_CUDA", "12090");
  CudaLibraries l = fakes.libraries();
  EXPECT_EQ(l.missing(CudaLibrary::cudnn).why, fakes.path("libcudnn.so.9") + " is for CUDA 12, and libcublasLt.so.12, which it cannot do without, was not found");
  EXPECT_TRUE(says<DeviceError>([&] { l.open(CudaLibrary::cudnn); }, {"is for CUDA 12", "pip install nvidia-cudnn-cu13"}));
  FakeLibraries whole({"libcudnn.so.9", "libcudnn_graph.so.9", "libcublasLt.so.12", "libcublasLt.so.13"});
  EXPECT_EQ(whole.libraries().missing(CudaLibrary::cudnn).why, "");
}

// Here too it would abort, already when it is asked for its version.
TEST(CudaLibraries, cudnn_without_its_parts_is_refused) {
  if (loader_finds("libcudnn_graph.so.9")) GTEST_SKIP() << "the loader's cache holds libcudnn_graph.so.9";
  FakeLibraries fakes({"libcudnn.so.9", "libcublasLt.so.13"});
  CudaLibraries l = fakes.libraries();
  EXPECT_EQ(l.missing(CudaLibrary::cudnn).why, fakes.path("libcudnn.so.9") + " lacks libcudnn_graph.so.9 beside it");
  EXPECT_TRUE(says<DeviceError>([&] { l.open(CudaLibrary::cudnn); }, {"cuDNN", "lacks libcudnn_graph.so.9"}));
}

TEST(CudaLibraries, real_ones_open_by_path) {
  std::filesystem::path folder = "/usr/local/cuda/lib64";
  if (!std::filesystem::exists(folder / "libcudnn.so.9")) GTEST_SKIP() << "there is no cuDNN in " << folder;
  CudaLibraries l({folder});
  EXPECT_NE(l.open(CudaLibrary::cudnn), nullptr);
  EXPECT_THAT(l.facts(CudaLibrary::cublas_lt).version, testing::MatchesRegex("13\\.[0-9]+\\.[0-9]+"));
  // It looks for its builtins by a bare name when it compiles.
  EXPECT_NE(l.open(CudaLibrary::nvrtc), nullptr);
  EXPECT_NE(dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(CudaBackend, says_what_is_wrong_with_its_file) {
  Environment environment;
  environment.set("BELFRY_CUDA_BACKEND", "/nowhere/libbelfry_cuda.so");
  EXPECT_THAT(cuda_facts().missing.at(0).why, HasSubstr("BELFRY_CUDA_BACKEND names /nowhere/libbelfry_cuda.so, which is not there"));
  environment.set("BELFRY_CUDA_BACKEND", BELFRY_FAKE_CUDA);
  EXPECT_THAT(cuda_facts().missing.at(0).why, HasSubstr("lacks belfry_cuda_backend_v1"));
  Folder folder;
  write_text(folder / "no.so", "no library");
  environment.set("BELFRY_CUDA_BACKEND", (folder / "no.so").string());
  EXPECT_THAT(cuda_facts().missing.at(0).why, HasSubstr("cannot be opened"));
}

TEST(CudaBackend, is_opened_by_its_file) {
  Environment environment;
  environment.set("BELFRY_CUDA_BACKEND", BELFRY_BACKEND);
  environment.set("BELFRY_CUDA_DRIVER", BELFRY_FAKE_CUDA);
  environment.set("FAKE_CUDA_GPUS", "2");
  CudaFacts facts = cuda_facts();
  EXPECT_EQ(facts.backend, BELFRY_BACKEND);
  EXPECT_EQ(facts.gpus.size(), 2u);
}

}  // namespace
}  // namespace belfry::test
