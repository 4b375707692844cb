// NVIDIA's libraries beside the driver: where they are, of which version, opened by full path and in an order that works.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/device/cuda/gpu_facts.h>

namespace belfry {

enum class CudaLibrary { cublas_lt, nvrtc, cudnn, nccl, nvml };
inline constexpr std::array kCudaLibraries = {CudaLibrary::cublas_lt, CudaLibrary::nvrtc, CudaLibrary::cudnn, CudaLibrary::nccl, CudaLibrary::nvml};

/// Folders where NVIDIA's libraries may lie, best first: those of BELFRY_CUDA_PATH (separated by colons), nvidia/*/lib of
/// $VIRTUAL_ENV, of the user's site-packages and of those of a Python on PATH, /usr/local/cuda/lib64. What is not a folder is left out, but for those named.
std::vector<std::filesystem::path> cuda_folders();

class CudaLibraries {
 public:
  explicit CudaLibraries(std::vector<std::filesystem::path> folders = cuda_folders()) : folders_(std::move(folders)) {}

  /// Where it is and of which version. Opens it to ask, but for cuBLASLt: that takes 40 ms and 190 MiB, so the version is its file's until it is opened.
  CudaLibraryFacts facts(CudaLibrary which);
  /// Why it cannot be used; `what` is empty if it can, as far as `facts` sees.
  Missing missing(CudaLibrary which);
  /// What NVRTC compiles for, 90 for compute capability 9.0, ascending; empty where it is missing or cannot say.
  std::vector<int> architectures();
  /// The handle of dlopen; cuBLASLt and NVRTC are opened before cuDNN, which would abort the process without the one and name no engine without the other,
  /// and NVRTC's builtins before NVRTC.
  /// MissingError with the reason and the way out. Handles are never closed.
  void* open(CudaLibrary which);

 private:
  struct Found {
    bool looked = false;
    void* handle = nullptr;
    CudaLibraryFacts facts;
    Missing missing;
  };
  Found& look(CudaLibrary which);
  std::string look_in_folders(CudaLibrary which, Found& found);
  void load(CudaLibrary which, Found& found);
  void ask_version(CudaLibrary which, Found& found);

  std::vector<std::filesystem::path> folders_;
  std::array<Found, kCudaLibraries.size()> found_;
};

}  // namespace belfry
