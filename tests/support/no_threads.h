// How large the stacks of threads are that start: a process that gets none more.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include <pthread.h>

namespace belfry::test {

/// While it lives each thread that starts is to have so many bytes of stack.
class ThreadStacks {
 public:
  explicit ThreadStacks(std::size_t bytes) {
    pthread_attr_t now;
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(::pthread_attr_init(&now), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&now, bytes), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&now), 0);
  }
  ThreadStacks(const ThreadStacks&) = delete;
  ~ThreadStacks() { EXPECT_EQ(::pthread_setattr_default_np(&before_), 0); }

 private:
  pthread_attr_t before_{};
};

/// While it lives no thread starts: there is no room for the stack that each is to have.
class NoThreads : public ThreadStacks {
 public:
  NoThreads() : ThreadStacks(std::size_t{1} << 47) {}
};

}  // namespace belfry::test
