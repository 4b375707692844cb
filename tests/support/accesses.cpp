#include "accesses.h"

#include <utility>

#include <fmt/format.h>

namespace belfry::test {

namespace {

constexpr std::uint64_t kThere = 1;
constexpr std::size_t kMostPages = 8192;  // 256 MB of cells

/// There is one: 1 bit; waits of the warp 18, waits of the block 17, thread 8, block 20.
std::uint64_t packed(const Standing& s, unsigned of_warp) {
  return std::uint64_t{s.block & 0xFFFFF} << 44 | std::uint64_t{s.thread & 0xFF} << 36 | std::uint64_t{s.waits & 0x1FFFF} << 19 | std::uint64_t{of_warp & 0x3FFFF} << 1 | kThere;
}
/// As writes are ordered, and as what was read before is.
std::uint64_t packed(const Standing& s) { return packed(s, s.warp_waits); }
std::uint64_t packed_for_reads(const Standing& s) { return packed(s, s.exchanges); }
unsigned block_of(std::uint64_t s) { return static_cast<unsigned>(s >> 44); }
unsigned thread_of(std::uint64_t s) { return static_cast<unsigned>(s >> 36 & 0xFF); }
unsigned waits_of(std::uint64_t s) { return static_cast<unsigned>(s >> 19 & 0x1FFFF); }
unsigned warp_waits_of(std::uint64_t s) { return static_cast<unsigned>(s >> 1 & 0x3FFFF); }
bool same_warp(std::uint64_t a, std::uint64_t b) { return block_of(a) == block_of(b) && thread_of(a) / 32 == thread_of(b) / 32; }

}  // namespace

void Accesses::begin_launch() {
  if (pages_.size() > kMostPages) pages_.clear(), last_ = nullptr;
  launch_ = ++stamps_;
  first_.clear();
  found_ = 0;
}

void Accesses::begin_block() {
  block_ = ++stamps_;
  if (std::exchange(copies_met_, false)) copies_.fill({});
}

/// `use` takes a cell and says whether to go on.
template <class Use> void Accesses::each(std::uintptr_t at, std::size_t bytes, bool shared, Use use) {
  const std::uint32_t stamp = shared ? block_ : launch_;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (const std::uintptr_t page = (at + i) / kPage; !last_ || page != last_page_) {
      last_ = pages_.try_emplace(page, kPage).first->second.data();
      last_page_ = page;
    }
    Cell& c = last_[(at + i) % kPage];
    if (c.stamp != stamp) c = {.stamp = stamp};
    if (!use(c, i)) return;
  }
}

inline bool Accesses::after(std::uint64_t now, std::uint64_t earlier) {
  if (block_of(now) != block_of(earlier)) return false;
  if (thread_of(now) == thread_of(earlier) || waits_of(earlier) < waits_of(now)) return true;
  return same_warp(now, earlier) && warp_waits_of(earlier) < warp_waits_of(now);
}

inline bool Accesses::after_write(std::uint64_t now, const Cell& c) const {
  if (!c.written) return true;
  if (c.group == 0) return after(now, c.written);
  if (block_of(now) != block_of(c.written)) return false;
  const std::vector<std::uint64_t>& awaited = copies_[thread_of(c.written)].awaited;
  return c.group <= awaited.size() && after(now, awaited[c.group - 1]);
}

bool Accesses::object(const Standing& now, const char* what, std::uintptr_t at, std::size_t bytes, bool shared, std::uint64_t other) {
  if (found_++ > 0) return false;
  first_ = fmt::format("thread {} of block {} {} ({} bytes of {} memory at {:#x})", now.thread, now.block, what, bytes, shared ? "shared" : "global", at);
  if (other) first_ += fmt::format(" by thread {} of block {}, and no wait lies between", thread_of(other), block_of(other));
  return false;
}

void Accesses::read(const Standing& now, void* p, std::size_t bytes, bool shared) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uint64_t me = packed(now), reader = packed_for_reads(now);
  each(at, bytes, shared, [&](Cell& c, std::size_t i) {
    if (shared && !c.written) static_cast<unsigned char*>(p)[i] = 0xFF;
    if (!after_write(me, c)) return object(now, "reads what is being written", at, bytes, shared, c.written);
    if (!c.read || after(reader, c.read)) c.read = reader;
    else if (!c.read_too || after(reader, c.read_too) || same_warp(c.read, c.read_too)) c.read_too = reader;
    return true;
  });
}

void Accesses::write_at(const Standing& now, std::uintptr_t at, std::size_t bytes, bool shared, std::uint32_t group) {
  const std::uint64_t me = packed(now), reads_before = packed_for_reads(now);
  each(at, bytes, shared, [&](Cell& c, std::size_t) {
    if (!after_write(me, c)) return object(now, "writes what is being written", at, bytes, shared, c.written);
    for (std::uint64_t reader : {c.read, c.read_too})
      if (reader && !after(reads_before, reader)) return object(now, "writes what is being read", at, bytes, shared, reader);
    c.written = me;
    c.group = group;
    c.read = c.read_too = 0;
    return true;
  });
}

void Accesses::write(const Standing& now, const void* at, std::size_t bytes, bool shared) { write_at(now, reinterpret_cast<std::uintptr_t>(at), bytes, shared, 0); }
void Accesses::write_later(const Standing& now, const void* at, std::size_t bytes, bool shared) { write_at(now, reinterpret_cast<std::uintptr_t>(at), bytes, shared, copies_[now.thread].closed + 1); }
void Accesses::outside(const Standing& now, const void* at, std::size_t bytes) { object(now, "reads or writes what is nobody's", reinterpret_cast<std::uintptr_t>(at), bytes, false, 0); }

void Accesses::close_group(unsigned thread) {
  copies_met_ = true;
  ++copies_[thread].closed;
}

void Accesses::await_groups(const Standing& now, unsigned but) {
  Copies& c = copies_[now.thread];
  while (c.awaited.size() + but < c.closed) c.awaited.push_back(packed(now));
}

void Accesses::await_all(const Standing& now) {
  close_group(now.thread);
  await_groups(now, 0);
}

std::string Accesses::objection() const { return found_ > 1 ? fmt::format("{} (and {} more)", first_, found_ - 1) : first_; }

}  // namespace belfry::test
