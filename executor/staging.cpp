#include <belfry/executor/staging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

namespace belfry {

namespace {

/// One core fills pinned memory at a fifth of the speed at which a GPU empties it.
void copy_by_several(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kMost = 4, kLeast = std::size_t{2} << 20;  // a thread begins in the time in which another copies a tenth of it
  const std::size_t count = std::clamp<std::size_t>(bytes / kLeast, 1, std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMost)), part = (bytes + count - 1) / count;
  std::array<std::jthread, kMost - 1> others;
  for (std::size_t k = 1; k < count; ++k) {
    auto copy = [=] { std::memcpy(to + k * part, from + k * part, std::min(part, bytes - k * part)); };
    try {
      others[k - 1] = std::jthread(copy);
    } catch (const std::exception&) {  // a step may be under way, which no error may leave
      copy();
    }
  }
  std::memcpy(to, from, std::min(part, bytes));
}

}  // namespace

void Staging::land_on(int device, Landing landing, std::byte* memory, std::unique_ptr<Queue> queue) { places_[device] = {std::move(landing), memory, std::move(queue)}; }

void Staging::settle() {
  for (auto& [device, place] : places_) busy_with_ = device, place.queue->finish();
}

void Staging::put(const FeedBinding& feed, const HostTensor& value, int which) {
  constexpr std::int64_t kSlice = std::int64_t{8} << 20;  // what several threads share; it is on its way while they fill the next
  std::byte* staged = feed.pinned[static_cast<std::size_t>(which)];
  for (std::int64_t first = 0, bytes = feed.type.bytes(); first < bytes; first += kSlice) {
    const std::int64_t past = std::min(bytes, first + kSlice);
    copy_by_several(staged + first, value.raw() + first, static_cast<std::size_t>(past - first));
    // Steps that read this buffer before have ended: the host has waited for the run that they were of.
    for (auto& [device, place] : places_)
      if (const LandedFeed* f = place.find(feed.value))
        if (const std::int64_t from = std::max(f->first, first), to = std::min(f->past, past); from < to) busy_with_ = device, place.queue->copy(place.at(*f, which) + (from - f->first), staged + from, to - from);
  }
}

void Staging::mark() {
  for (auto& [device, place] : places_) busy_with_ = device, place.queue->mark(0);
}

const std::byte* Staging::address(const FeedBinding& feed, int device, int which) const {
  if (const auto place = places_.find(device); place != places_.end())
    if (const LandedFeed* f = place->second.find(feed.value)) return place->second.at(*f, which) - f->first;
  return feed.pinned[static_cast<std::size_t>(which)];
}

Queue* Staging::queue(int device) const {
  const auto place = places_.find(device);
  return place == places_.end() ? nullptr : place->second.queue.get();
}

const Landing& Staging::landing(int device) const {
  static const Landing none;
  const auto place = places_.find(device);
  return place == places_.end() ? none : place->second.landing;
}

const LandedFeed* Staging::Place::find(ValueIndex feed) const {
  const auto at = std::find_if(landing.feeds.begin(), landing.feeds.end(), [&](const LandedFeed& f) { return f.value == feed; });
  return at == landing.feeds.end() ? nullptr : &*at;
}

}  // namespace belfry
