// What is known of the GPUs here: the driver, each device, links, libraries, and what is missing. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/error.h>

namespace belfry {

/// What is not there, and what to do about it. One sentence each, without a full stop.
struct Missing {
  std::string what, why, way_out;
};

inline std::string to_string(const Missing& m) { return m.what + ": " + m.why + "; " + m.way_out; }

/// A GPU cannot be used, since something is not there.
struct MissingError : DeviceError {
  explicit MissingError(Missing m) : DeviceError(to_string(m)), missing(std::move(m)) {}
  Missing missing;
};

struct GpuFacts {
  int index = 0;                     ///< as gpu:N; CUDA_VISIBLE_DEVICES decides which these are
  std::string name;
  int major = 0, minor = 0;          ///< compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = -1;      ///< -1: it could not be asked
  std::string uuid, pci;             ///< "GPU-…", "0000:65:00.0"
  Missing stops;                     ///< what keeps this one from being used; `what` is empty if nothing is known to
};

/// From one GPU to another.
struct GpuLink {
  int from = 0, to = 0;
  bool peer = false;                 ///< each reads the other's memory; else a copy goes through the host
  std::string kind;                  ///< "NVLink", "PCIe"; "peer" where NVML is not there to tell them apart; "host"
};

struct CudaLibraryFacts {
  std::string name;                  ///< "cuDNN"
  std::string path, version;         ///< empty if it was not found; a library that is loaded late has its major version alone
};

struct CudaFacts {
  std::string backend;               ///< the file; empty if there is none
  std::string wanted;                ///< the CUDA version that the backend is built with: "13.0"
  std::string driver;                ///< the file that answers as driver; empty if there is none
  std::string driver_cuda;           ///< the newest CUDA version that it knows
  std::string driver_release;        ///< "580.65.06", from NVML; empty without it
  std::vector<GpuFacts> gpus;
  std::vector<GpuLink> links;        ///< per pair from < to
  std::vector<CudaLibraryFacts> libraries;
  std::vector<Missing> missing;      ///< first what keeps all GPUs from being used; of a GPU that the driver does not give, under its name

  /// What was found missing under that name; null if it is not missing.
  const Missing* find_missing(const std::string& what) const {
    for (const Missing& m : missing)
      if (m.what == what) return &m;
    return nullptr;
  }
};

}  // namespace belfry
