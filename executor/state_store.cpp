#include <belfry/executor/state_store.h>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

StateStore::Held& StateStore::held(const std::string& variable, const std::string& device, const LocalType& type) {
  auto at = held_.find({variable, device});
  if (at == held_.end()) at = held_.emplace(std::pair(variable, device), Held{type, Arena(type.bytes(), device), 0}).first;
  if (!(at->second.type == type)) throw UserError(fmt::format("variable '{}' is {} on {}, not {}", variable, to_string(at->second.type), device, to_string(type)));
  return at->second;
}

const StateStore::Held* StateStore::find(const std::string& variable, std::int64_t version) const {
  for (auto at = held_.lower_bound({variable, ""}); at != held_.end() && at->first.first == variable; ++at)
    if (at->second.version == version) return &at->second;
  return nullptr;
}

}  // namespace belfry
