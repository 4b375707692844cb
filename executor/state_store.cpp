#include <belfry/executor/state_store.h>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

StateStore::Held& StateStore::held(const std::string& variable, const std::string& device, const LocalType& type, const Devices& devices) {
  auto at = held_.find({variable, device});
  if (at == held_.end()) {
    auto own = devices.find(device);
    std::shared_ptr<Device> of = own == devices.end() ? nullptr : own->second;
    Arena arena = of ? of->allocate(type.bytes(), device) : devices.empty() ? Arena(type.bytes(), device) : devices.begin()->second->allocate_host(type.bytes());
    at = held_.emplace(std::pair(variable, device), Held{type, std::move(of), std::move(arena), 0}).first;
  }
  if (!(at->second.type == type)) throw UserError(fmt::format("variable '{}' is {} on {}, not {}", variable, to_string(at->second.type), device, to_string(type)));
  return at->second;
}

StateStore::Held* StateStore::find(const std::string& variable, std::int64_t version) {
  for (auto at = held_.lower_bound({variable, ""}); at != held_.end() && at->first.first == variable; ++at)
    if (at->second.version == version) return &at->second;
  return nullptr;
}

}  // namespace belfry
