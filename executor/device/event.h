// A monotonic counter per stream: how many of its steps are finished. Waiting spins for a while, then sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace belfry {

/// Of the steady clock.
inline std::int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// On a cache line of its own: streams signal without disturbing each other.
class alignas(64) Event {
 public:
  static constexpr std::int64_t kAborted = std::int64_t{1} << 62;

  void reset() { count_.store(0, std::memory_order_relaxed); }
  /// Never lowers the count: a step that ends after an abort leaves it aborted.
  void signal(std::int64_t count) {
    std::int64_t now = count_.load(std::memory_order_relaxed);
    while (now < count && !count_.compare_exchange_weak(now, count, std::memory_order_seq_cst, std::memory_order_relaxed)) {
    }
    if (sleepers_.load(std::memory_order_seq_cst)) count_.notify_all();
  }
  /// Everyone who waits, now or later, goes on and finds out that the run is over.
  void abort() { signal(kAborted); }
  std::int64_t count() const { return count_.load(std::memory_order_acquire); }

  /// The same, but calls `look` now and then, which may throw: for who waits for what a device may never bring about.
  template <class F>
  bool wait(std::int64_t count, F look) {
    auto spun = std::chrono::steady_clock::now() + std::chrono::microseconds(50), next = spun + std::chrono::milliseconds(50);
    for (std::int64_t now = this->count(); now < count; now = this->count()) {
      auto time = std::chrono::steady_clock::now();
      if (time < spun) {
        __builtin_ia32_pause();
        continue;
      }
      if (time >= next) {
        look();
        next = time + std::chrono::milliseconds(50);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return this->count() < kAborted;
  }
  /// Until `count` steps are finished; false if the run was aborted.
  bool wait(std::int64_t count) {
    if (std::int64_t now = this->count(); now >= count) return now < kAborted;
    auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    do {
      for (int i = 0; i < 64; ++i) {
        if (std::int64_t now = this->count(); now >= count) return now < kAborted;
        __builtin_ia32_pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    std::int64_t now = count_.load(std::memory_order_seq_cst);
    while (now < count) {
      count_.wait(now, std::memory_order_seq_cst);
      now = count_.load(std::memory_order_seq_cst);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return now < kAborted;
  }

 private:
  std::atomic<std::int64_t> count_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace belfry
