#include <belfry/graph/plan/vector_clock.h>

#include <algorithm>

namespace belfry {

VectorClock::VectorClock(std::size_t streams) {
  while (streams > std::size_t{1} << (kBits * (top_ + 1))) ++top_;
}

int VectorClock::at(int stream) const {
  const void* part = root_.get();
  for (int level = top_; part && level > 0; --level) part = (*static_cast<const Parts*>(part))[static_cast<std::size_t>(stream >> (kBits * level)) % kWidth].get();
  return part ? (*static_cast<const Numbers*>(part))[static_cast<std::size_t>(stream) % kWidth] : 0;
}

void VectorClock::set(int stream, int number) { root_ = with(root_, top_, stream, number); }

void VectorClock::join(const VectorClock& other) { root_ = joined(root_, other.root_, top_); }

VectorClock::Part VectorClock::with(const Part& part, int level, int stream, int number) {
  const std::size_t at = static_cast<std::size_t>(stream >> (kBits * level)) % kWidth;
  if (level == 0) {
    auto out = part ? std::make_shared<Numbers>(*static_cast<const Numbers*>(part.get())) : std::make_shared<Numbers>();
    (*out)[at] = number;
    return out;
  }
  auto out = part ? std::make_shared<Parts>(*static_cast<const Parts*>(part.get())) : std::make_shared<Parts>();
  (*out)[at] = with((*out)[at], level - 1, stream, number);
  return out;
}

/// One of both where it has all of the other.
VectorClock::Part VectorClock::joined(const Part& a, const Part& b, int level) {
  if (!b || a == b) return a;
  if (!a) return b;
  auto larger = [&]<class T>(const T& mine, const T& theirs, auto&& of) -> Part {
    T out;
    for (std::size_t i = 0; i < mine.size(); ++i) out[i] = of(mine[i], theirs[i]);
    if (out == mine) return a;
    if (out == theirs) return b;
    return std::make_shared<T>(std::move(out));
  };
  if (level == 0) return larger(*static_cast<const Numbers*>(a.get()), *static_cast<const Numbers*>(b.get()), [](int x, int y) { return std::max(x, y); });
  return larger(*static_cast<const Parts*>(a.get()), *static_cast<const Parts*>(b.get()), [&](const Part& x, const Part& y) { return joined(x, y, level - 1); });
}

}  // namespace belfry
