#include "machine.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include <belfry/executor/device/cuda/cuda_device_internal.h>
#include <belfry/graph/error.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/member_kernels_internal.h>

#include "host_gpu.h"
#include "on_stream.h"

namespace belfry::test {
namespace {

/// Generated kernels and, for what libraries do on GPUs, references: all as steps of the fake driver's streams.
KernelTable host_kernels(const std::shared_ptr<CudaToolkit>& toolkit, const OpSet& ops) {
  auto declare = reinterpret_cast<fake_cuda::Declare*>(dlsym(dlopen(std::getenv("BELFRY_CUDA_DRIVER"), RTLD_NOW), "fake_cuda_declare"));
  if (!declare) throw std::runtime_error("BELFRY_CUDA_DRIVER is not the fake driver");
  KernelTable out;
  auto add = [&](Kernel k, std::function<std::unique_ptr<Prepared>(const KernelRequest&)> host) {
    const Kernel plain = k;
    k.prepare = [toolkit, declare, plain, host](const KernelRequest& r) { return std::make_unique<OnStream>(toolkit->driver(), declare, Touches(plain, r), host(r)); };
    out.add(std::move(k));
  };
  auto code = std::make_shared<HostGpu>();
  const KernelTable generated = generated_kernels(code);
  for (const Kernel& k : generated.all()) add(k, [code, k](const KernelRequest& r) { return k.prepare(r); });
  auto references = std::make_shared<const KernelTable>();
  for (const auto& op : ops.all())
    add({"on_host_" + op->name, op->name, [](const KernelRequest&) { return Support{.in_place = false}; }, {}}, [references](const KernelRequest& r) { return references->prepare(kReferenceKernel, r); });
  auto members = std::make_shared<const KernelTable>(out);
  for (const auto& [kind, ops_of] : std::initializer_list<std::pair<const char*, std::vector<std::string>>>{
           {kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}}, {kMatmulBias, {"matmul", "add"}}, {kMatmulAdd, {}}, {kConv2dBias, {"conv2d", "add"}}, {kConv2dBiasAdd, {"conv2d", "add", "add"}}, {kConv2dBiasRelu, {"conv2d", "add", "relu"}}})
    out.add(in_turn(kind, ops_of, members, false));
  return out;
}

Machine find() {
  const char* where = std::getenv("BELFRY_GPU_TESTS");
  Machine m;
  m.real = !where || std::string_view(where) != "host";
  m.toolkit = std::make_shared<CudaToolkit>();
  auto library = std::make_shared<Library>(*standard_library());
  try {
    m.toolkit->driver();
    library->kernels["gpu"] = m.real ? cuda_kernels(m.toolkit) : host_kernels(m.toolkit, *library->ops);
  } catch (const DeviceError& e) {
    m.why = e.what();
  }
  library->open_gpu = [toolkit = m.toolkit](const DeviceId& id) { return open_cuda_device(toolkit, id); };
  m.library = library;
  return m;
}

}  // namespace

std::shared_ptr<Device> Machine::open(const DeviceId& device) const { return library->open_gpu(device); }

std::size_t Machine::free_bytes() const {
  open({0, "gpu", 0, -1})->enter();
  std::size_t free = 0, total = 0;
  check_driver(toolkit->driver(), toolkit->driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

bool Machine::alive() const try {
  static const std::shared_ptr<Device> held = open({0, "gpu", 0, -1});  // so that no test makes the context anew
  held->enter();
  std::byte bytes[8] = {};
  Arena there = held->allocate(sizeof bytes, "whether it works");
  held->copy(there.at(0), bytes, sizeof bytes);
  return true;
} catch (const std::exception&) {
  return false;
}

const Machine& machine() {
  static const Machine m = find();
  return m;
}

}  // namespace belfry::test
