#include "described_gpu.h"

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <tuple>
#include <utility>

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

std::shared_ptr<Target> described(std::string& why, bool a100) {
  if (!built()) return why = "Belfry was built without cuDNN's headers", nullptr;
  // Engines that are compiled at run time load their code while they are planned.
  if (!dlopen(BELFRY_FAKE_LIBCUDA, RTLD_NOW | RTLD_GLOBAL)) return why = dlerror(), nullptr;
  std::ostringstream json;
  json << std::ifstream(BELFRY_SOURCE "/tests/data/cudnn_sm_90.json").rdbuf();
  std::string text = json.str();
  for (auto [is, becomes] : {std::pair{"\"deviceVer\": 900", "\"deviceVer\": 800"}, {"\"multiProcessorCount\": 132", "\"multiProcessorCount\": 108"}, {"232448", "166912"}, {"52428800", "41943040"},
                             {"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"}})
    if (a100) text.replace(text.find(is), std::strlen(is), becomes);
  try {
    return described_target(toolkit(), text);
  } catch (const DeviceError& e) {
    why = e.what();
  }
  return nullptr;
}

}  // namespace belfry::test
