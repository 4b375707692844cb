#include <belfry/ops/cuda/code_internal.h>

#include <exception>
#include <thread>
#include <utility>

namespace belfry {

std::shared_ptr<GpuFunction> GpuCode::function(const std::string& source, const std::string& entry, std::size_t words) {
  std::shared_ptr<GpuFunction> out = make(source, entry, words);
  const int of = device();
  std::lock_guard lock(mutex_);
  asked_[{std::this_thread::get_id(), of}].push_back(out);
  return out;
}

void GpuCode::load() {
  std::vector<std::weak_ptr<GpuFunction>> mine;
  const int of = device();
  {
    std::lock_guard lock(mutex_);
    if (auto asked = asked_.extract({std::this_thread::get_id(), of})) mine = std::move(asked.mapped());
  }
  std::exception_ptr first;
  for (const auto& f : mine) {
    try {
      if (const auto function = f.lock()) function->load();
    } catch (...) {
      if (!first) first = std::current_exception();
      std::lock_guard lock(mutex_);
      asked_[{std::this_thread::get_id(), of}].push_back(f);  // whoever asks again tries again
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace belfry
