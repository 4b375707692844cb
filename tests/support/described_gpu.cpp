#include "described_gpu.h"

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/graph/error.h>

namespace belfry::test {

using namespace cudnn;

namespace {

CudaToolkit& toolkit() {
  static CudaToolkit t;
  return t;
}

}  // namespace

std::shared_ptr<Target> described(std::string& why, int sm) {
  if (!built()) return why = "Belfry was built without cuDNN's headers", nullptr;
  // Engines that are compiled at run time load their code while they are planned.
  if (!dlopen(BELFRY_FAKE_LIBCUDA, RTLD_NOW | RTLD_GLOBAL)) return why = dlerror(), nullptr;
  std::ostringstream json;
  json << std::ifstream(BELFRY_SOURCE "/tests/data/cudnn_sm_90.json").rdbuf();
  std::string text = json.str();
  struct Other {
    const char *is, *a100, *b200;
  };
  for (const Other& o : {Other{"\"deviceVer\": 900", "\"deviceVer\": 800", "\"deviceVer\": 1000"}, {"\"multiProcessorCount\": 132", "\"multiProcessorCount\": 108", "\"multiProcessorCount\": 148"},
                         {"232448", "166912", "232448"}, {"52428800", "41943040", "132644864"}, {"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"}})
    if (sm != 90) text.replace(text.find(o.is), std::strlen(o.is), sm == 80 ? o.a100 : o.b200);
  try {
    return described_target(toolkit(), text);
  } catch (const DeviceError& e) {
    why = e.what();
  }
  return nullptr;
}

}  // namespace belfry::test
