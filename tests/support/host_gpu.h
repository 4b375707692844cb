// Generated kernels run on the host: their texts, collected and compiled by the host's compiler, a block after the other. What their threads read and write is watched (accesses.h): a race fails the test.
#pragma once

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <belfry/ops/cuda/code_internal.h>

namespace belfry::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Functions are launched one at a time, whoever launches them.
class HostGpu : public GpuCode {
 public:
  /// Compiles what was asked for since the last call; a launch of what is not compiled does. Throws with the compiler's words.
  void build();
  bool strict = false;  ///< what its thread has not loaded is not launched
  bool every = kSanitized || std::getenv("BELFRY_EVERY_TEXT");  ///< text's kernels are watched, not an eighth's
  std::vector<std::string> sources() const;

 private:
  struct Entry {
    std::string source, name;
    std::size_t words = 0;
    bool together = false;  ///< its threads wait for each other
    bool watched = false;
    void (*run)(const void* words) = nullptr;
    int launches = 0;
  };
  struct Function;
  bool watches(const std::string& source) const;
  void build(bool watched);
  std::shared_ptr<GpuFunction> make(const std::string& source, const std::string& entry, std::size_t words) override;
  std::recursive_mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Entry>> entries_;
};

}  // namespace belfry::test
