// Who may call a session: one thread at a time, and nobody once it was moved from.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include <belfry/graph/error.h>
#include <belfry/graph/float_environment.h>

namespace belfry {

template <class Impl>
Impl& alive(const std::unique_ptr<Impl>& impl) {
  if (!impl) throw UserError("this Session was moved from: the one that it went to has its state and plans");
  return *impl;
}

/// One thread at a time, which may come again while it is inside, but not while the session asks it for a batch (`asking`). There it computes as the session's own threads do.
class OneCaller {
 public:
  OneCaller(std::atomic<std::thread::id>& inside, const bool& asking) : inside_(&inside) {
    std::thread::id other;
    if (inside.compare_exchange_strong(other, std::this_thread::get_id())) return;
    inside_ = nullptr;
    if (other != std::this_thread::get_id()) throw UserError("this session is at work in another thread: give each thread a session of its own, or hold a lock around its calls");
    if (asking) throw UserError("this session is at work, and asks for the next batch: `next` gives feeds, and does not call the session that it is given to");
  }
  OneCaller(const OneCaller&) = delete;
  ~OneCaller() {
    if (inside_) inside_->store({});
  }

 private:
  DefaultFloats floats_;
  std::atomic<std::thread::id>* inside_;
};

/// True while this lives.
class Asking {
 public:
  explicit Asking(bool& flag) : flag_(flag) { flag_ = true; }
  Asking(const Asking&) = delete;
  ~Asking() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace belfry
