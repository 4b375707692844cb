#if __has_include(<cudnn.h>)
#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cudnn_api_internal.h>

namespace belfry::cudnn {

namespace {

template <class F>
void load(void* library, const char* name, F& f) {
  f = reinterpret_cast<F>(dlsym(library, name));
  if (!f) throw DeviceError(fmt::format("cuDNN lacks {}; install cuDNN {}.{} or a later {}", name, CUDNN_MAJOR, CUDNN_MINOR, CUDNN_MAJOR));
}

Api loaded(void* library) {
  Api out{};
#define BELFRY_LOAD(name) load(library, #name, out.name)
  BELFRY_LOAD(cudnnGetVersion);
  BELFRY_LOAD(cudnnCreate);
  BELFRY_LOAD(cudnnDestroy);
  BELFRY_LOAD(cudnnSetStream);
  BELFRY_LOAD(cudnnGetErrorString);
  BELFRY_LOAD(cudnnGetLastErrorString);
  BELFRY_LOAD(cudnnBackendCreateDescriptor);
  BELFRY_LOAD(cudnnBackendDestroyDescriptor);
  BELFRY_LOAD(cudnnBackendSetAttribute);
  BELFRY_LOAD(cudnnBackendGetAttribute);
  BELFRY_LOAD(cudnnBackendFinalize);
  BELFRY_LOAD(cudnnBackendExecute);
#undef BELFRY_LOAD
  return out;
}

std::string said(const Api& api, cudnnStatus_t status) {
  char text[512] = "";
  api.cudnnGetLastErrorString(text, sizeof text);
  return fmt::format("{}{}{}", api.cudnnGetErrorString(status), *text ? ": " : "", text);
}

}  // namespace

bool built() { return true; }

const Api& api(CudaToolkit& toolkit) {
  void* library = toolkit.library(CudaLibrary::cudnn);
  static const Api kApi = loaded(library);
  return kApi;
}

void check(const Api& api, cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw DeviceError(fmt::format("cuDNN: {} gives {}", call, said(api, status)));
}

Descriptor::Descriptor(const Api& api, cudnnBackendDescriptorType_t type) : api_(&api) { check(api, api.cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor"); }

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  cudnnStatus_t status = api_->cudnnBackendSetAttribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) check(*api_, status, fmt::format("cudnnBackendSetAttribute({})", static_cast<int>(name)).c_str());
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, void* values) const {
  std::int64_t has = 0;
  cudnnStatus_t status = api_->cudnnBackendGetAttribute(raw_, name, type, count, &has, values);
  if (status != CUDNN_STATUS_SUCCESS) check(*api_, status, fmt::format("cudnnBackendGetAttribute({})", static_cast<int>(name)).c_str());
  return has;
}

bool Descriptor::try_finalize() {
  cudnnStatus_t status = api_->cudnnBackendFinalize(raw_);
  // CUDNN_STATUS_NOT_SUPPORTED and its kin, and engines whose text its compiler does not take
  if (status / 1000 == 3 || status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED) return false;
  check(*api_, status, "cudnnBackendFinalize");
  return true;
}

void Descriptor::finalize() { check(*api_, api_->cudnnBackendFinalize(raw_), "cudnnBackendFinalize"); }

std::shared_ptr<Target> current_target(CudaToolkit& toolkit) {
  // The driver's own word for the context is not in the table; a thread of the executor keeps one context.
  thread_local std::weak_ptr<TargetImpl> known;
  if (auto target = known.lock()) return target;
  auto target = std::make_shared<TargetImpl>(api(toolkit));
  check(target->api, target->api.cudnnCreate(&target->handle), "cudnnCreate");
  known = target;
  return target;
}

std::shared_ptr<Target> described_target(CudaToolkit& toolkit, const std::string& json) {
  auto target = std::make_shared<TargetImpl>(api(toolkit));
  Descriptor d(target->api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()), json.data());
  d.finalize();
  target->device = std::move(d);
  return target;
}

}  // namespace belfry::cudnn
#endif
