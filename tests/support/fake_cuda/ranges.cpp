// A tool that watches NVTX ranges, as a profiler does: NVTX loads it where NVTX_INJECTION64_PATH names the fake driver.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <utility>

#include "fake_cuda.h"

namespace {

std::mutex mutex;
std::string names;
thread_local int depth = 0;

int push(const char* name) {
  std::lock_guard lock(mutex);
  names += std::string(static_cast<std::size_t>(depth), ' ') + name + "\n";
  return depth++;
}
int pop() {
  std::lock_guard lock(mutex);
  if (depth == 0) names += "a range ends that did not begin\n";
  return --depth;
}

}  // namespace

extern "C" {

const char* fake_cuda_ranges() {
  static std::string given;
  std::lock_guard lock(mutex);
  given.clear();
  std::swap(given, names);
  return given.c_str();
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* table = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (!table || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) || count <= NVTX_CBID_CORE_RangePop) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // extern "C"
