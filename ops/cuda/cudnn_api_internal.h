// cuDNN's functions, taken from the opened library, and its descriptors: only files named cudnn_* read it.
#pragma once

#include <cudnn.h>

#include <map>
#include <utility>

#include <belfry/ops/cuda/cudnn_internal.h>

namespace belfry::cudnn {

/// A field per function, under the function's own name.
struct Api {
  decltype(&::cudnnGetVersion) cudnnGetVersion;
  decltype(&::cudnnCreate) cudnnCreate;
  decltype(&::cudnnDestroy) cudnnDestroy;
  decltype(&::cudnnSetStream) cudnnSetStream;
  decltype(&::cudnnGetErrorString) cudnnGetErrorString;
  decltype(&::cudnnGetLastErrorString) cudnnGetLastErrorString;
  decltype(&::cudnnBackendCreateDescriptor) cudnnBackendCreateDescriptor;
  decltype(&::cudnnBackendDestroyDescriptor) cudnnBackendDestroyDescriptor;
  decltype(&::cudnnBackendSetAttribute) cudnnBackendSetAttribute;
  decltype(&::cudnnBackendGetAttribute) cudnnBackendGetAttribute;
  decltype(&::cudnnBackendFinalize) cudnnBackendFinalize;
  decltype(&::cudnnBackendExecute) cudnnBackendExecute;
};

/// Opened once per process. DeviceError where the library is missing or lacks a function.
const Api& api(CudaToolkit& toolkit);

/// DeviceError "cuDNN: CALL gives CUDNN_STATUS_…: what it says itself".
void check(const Api& api, cudnnStatus_t status, const char* call);

class Descriptor {
 public:
  Descriptor(const Api& api, cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_) api_->cudnnBackendDestroyDescriptor(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t name, std::int64_t v) { set(name, CUDNN_TYPE_INT64, 1, &v); }
  void set(cudnnBackendAttributeName_t name, bool v) { set(name, CUDNN_TYPE_BOOLEAN, 1, &v); }
  void set(cudnnBackendAttributeName_t name, double v) { set(name, CUDNN_TYPE_DOUBLE, 1, &v); }
  void set(cudnnBackendAttributeName_t name, const Extents& v) { set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(v.size()), v.data()); }
  void set(cudnnBackendAttributeName_t name, const Descriptor& v) { set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v.raw_); }
  /// How many values the attribute has, of which `values` takes up to `count`.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, void* values) const;
  /// False where cuDNN does not support it; DeviceError for all other failures.
  bool try_finalize();
  void finalize();

 private:
  const Api* api_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// An engine that was found; it serves every layer of the same form.
struct Plan {
  Descriptor descriptor;
  EngineFacts facts;
};

/// A handle, or the description of a device.
struct TargetImpl : Target {
  explicit TargetImpl(const Api& library) : api(library) {}
  ~TargetImpl() override {
    plans.clear();  // they are the handle's, whose last call is its end
    if (handle) api.cudnnDestroy(handle);
  }
  const Api& api;
  cudnnHandle_t handle = nullptr;
  std::optional<Descriptor> device;
  void* stream = nullptr;  ///< that the handle is set to
  std::map<std::string, std::shared_ptr<const Plan>> plans;  ///< by what was asked for
};

/// The descriptors of a graph, finalized; empty where cuDNN refuses the graph, with `why`.
std::optional<Descriptor> operation_graph(const TargetImpl& target, const Graph& graph, std::string& why);

}  // namespace belfry::cudnn
