#include <belfry/ops/cuda/code_internal.h>

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
  for (const auto& f : mine)
    if (const auto function = f.lock()) function->load();
}

}  // namespace belfry
