#include <belfry/executor/state_store.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

StateStore::Held& StateStore::held(const std::string& variable, const std::string& device, const StateBuffer& planned, const Devices& devices) {
  const LocalType& type = planned.buffer.type;
  Key key{variable, device, planned.first, type.elements()};
  auto at = held_.find(key);
  if (at == held_.end()) {
    auto own = devices.find(device);
    std::shared_ptr<Device> of = own == devices.end() ? nullptr : own->second;
    Arena arena = of ? of->allocate(planned.bytes, device) : devices.empty() ? Arena(planned.bytes, device) : devices.begin()->second->allocate_host(planned.bytes);
    at = held_.emplace(key, Held{type, planned.first, std::move(of), std::move(arena), 0}).first;
  }
  if (!(at->second.type == type)) throw UserError(fmt::format("variable '{}' is {} on {}, not {}", variable, to_string(at->second.type), device, to_string(type)));
  return at->second;
}

bool StateStore::copy_to(const std::string& variable, std::int64_t version, std::int64_t first, std::int64_t bytes, std::byte* to, Device* device) const {
  std::int64_t done = first;  // bytes before it are there
  for (bool found = true; found && done < first + bytes;) {
    found = false;
    for (auto at = held_.lower_bound(Key{variable, "", 0, 0}); at != held_.end() && std::get<0>(at->first) == variable; ++at) {
      const Held& h = at->second;
      std::int64_t begin = h.first * static_cast<std::int64_t>(size_of(h.type.dtype)), past = begin + h.type.bytes();
      if (h.version != version || begin > done || past <= done) continue;
      std::int64_t count = std::min(past, first + bytes) - done;
      copy_bytes(to + (done - first), device, h.arena.at(done - begin), h.device.get(), count);
      done += count;
      found = true;
      break;
    }
  }
  return done >= first + bytes;
}

}  // namespace belfry
