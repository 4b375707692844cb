// Generated kernels run on the host: their texts, collected and compiled by the host's compiler, a block after the other.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <belfry/ops/cuda/code_internal.h>

namespace belfry::test {

/// Functions are launched one at a time, whoever launches them.
class HostGpu : public GpuCode {
 public:
  /// Compiles what was asked for since the last call, as one library; a launch of what is not compiled does. Throws with the compiler's words.
  void build();
  bool strict = false;  ///< what its thread has not loaded is not launched
  std::vector<std::string> sources() const;

 private:
  struct Entry {
    std::string source, name;
    std::size_t words = 0;
    bool together = false;  ///< its threads wait for each other
    void (*run)(const void* words) = nullptr;
    int launches = 0;
  };
  struct Function;
  std::shared_ptr<GpuFunction> make(const std::string& source, const std::string& entry, std::size_t words) override;
  std::recursive_mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Entry>> entries_;
};

}  // namespace belfry::test
