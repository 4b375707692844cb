// A process that gets no thread more.
#pragma once

#include <gtest/gtest.h>

#include <pthread.h>

namespace belfry::test {

/// While it lives no thread starts: there is no room for the stack that each is to have.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t large;
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(::pthread_attr_init(&large), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&large, std::size_t{1} << 47), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&large), 0);
  }
  NoThreads(const NoThreads&) = delete;
  ~NoThreads() { EXPECT_EQ(::pthread_setattr_default_np(&before_), 0); }

 private:
  pthread_attr_t before_{};
};

}  // namespace belfry::test
