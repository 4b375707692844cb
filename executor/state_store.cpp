#include <belfry/executor/state_store.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

StateStore::Key StateStore::key_of(const Wanted& w) { return {w.variable, w.device, w.planned.first, w.planned.buffer.type.elements()}; }

void StateStore::make(const std::vector<Wanted>& wanted, const Devices& devices) {
  std::map<std::string, std::map<Key, const Wanted*>> fresh;  // by device
  for (const Wanted& w : wanted)
    if (!held_.contains(key_of(w))) fresh[w.device].emplace(key_of(w), &w);
  for (const auto& [device, buffers] : fresh) {
    std::int64_t bytes = 0;
    for (const auto& [key, w] : buffers) bytes += aligned_bytes(w->planned.bytes);
    const auto own = devices.find(device);
    const std::shared_ptr<Device> of = own == devices.end() ? nullptr : own->second;
    const auto all = std::make_shared<Arena>(of ? of->allocate(bytes, device) : devices.empty() ? Arena(bytes, device) : devices.begin()->second->allocate_host(bytes));
    std::int64_t at = 0;
    for (const auto& [key, w] : buffers) {
      Arena part(all->at(at), w->planned.bytes, [all](std::byte*) {});
      held_.emplace(key, Held{w->planned.buffer.type, w->planned.first, of, std::move(part), 0});
      at += aligned_bytes(w->planned.bytes);
    }
  }
}

StateStore::Held& StateStore::held(const Wanted& w) {
  Held& out = held_.at(key_of(w));
  if (!(out.type == w.planned.buffer.type)) throw UserError(fmt::format("variable '{}' is {} on {}, not {}", w.variable, to_string(out.type), w.device, to_string(w.planned.buffer.type)));
  return out;
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
