// What a kernel's threads read and write, held to what CUDA promises of their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace belfry::test {

/// Where a thread stands: what it has done so far in step with others. Up to 2^20 blocks of 256 threads.
struct Standing {
  unsigned block, thread;
  unsigned waits, warp_waits;  ///< of its block, and of its warp alone, that are over
  unsigned exchanges;          ///< of its warp: those waits, and values that it has passed on
};

/// One launch at a time, and in it a block after the other. Two accesses of a byte, one of them a write, must be of one thread, or a wait of their block (or warp) lies between them; between a read and
/// the write after it, an exchange of values in the warp is enough. Accesses of different blocks have no order. What is copied ahead is written when its thread has awaited it. Shared memory that is read
/// before its block has written it holds what makes no number.
class Accesses {
 public:
  void begin_launch();
  void begin_block();  ///< its shared memory is no other's
  void read(const Standing& now, void* at, std::size_t bytes, bool shared);
  void write(const Standing& now, const void* at, std::size_t bytes, bool shared);
  /// As `write`, by a copy of the thread's open group.
  void write_later(const Standing& now, const void* at, std::size_t bytes, bool shared);
  /// Of memory that nobody has: no read nor write.
  void outside(const Standing& now, const void* at, std::size_t bytes);
  void close_group(unsigned thread);
  /// All but the last `but` groups that the thread has closed are written.
  void await_groups(const Standing& now, unsigned but);
  void await_all(const Standing& now);
  /// What was found first since the launch began, and how often anything was; "": nothing.
  std::string objection() const;

 private:
  /// Of a byte. Of readers two are kept, of two warps where there are such: any writer but they is in a race with one of them.
  struct Cell {
    std::uint32_t stamp = 0;  ///< launch, or block where the byte is shared; another's cell is empty
    std::uint32_t group = 0;  ///< of its writer's copies, counted from 1; 0: written at once
    std::uint64_t written = 0, read = 0, read_too = 0;  ///< Standings with a bit that says that there is one
  };
  struct Copies {
    std::vector<std::uint64_t> awaited;  ///< when, by group
    std::uint32_t closed = 0;
  };
  template <class Use> void each(std::uintptr_t at, std::size_t bytes, bool shared, Use use);
  static bool after(std::uint64_t now, std::uint64_t earlier);
  bool after_write(std::uint64_t now, const Cell& c) const;
  bool object(const Standing& now, const char* what, std::uintptr_t at, std::size_t bytes, bool shared, std::uint64_t other);
  void write_at(const Standing& now, std::uintptr_t at, std::size_t bytes, bool shared, std::uint32_t group);

  static constexpr std::size_t kPage = 1024;
  std::unordered_map<std::uintptr_t, std::vector<Cell>> pages_;
  Cell* last_ = nullptr;
  std::uintptr_t last_page_ = 0;
  std::uint32_t launch_ = 0, block_ = 0, stamps_ = 0;
  std::array<Copies, 256> copies_;  ///< of the block's threads
  bool copies_met_ = false;
  std::string first_;
  int found_ = 0;
};

}  // namespace belfry::test
