// Kernels that can be launched with others, as steps of the fake driver's streams.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/joint_launch.h>

#include "on_stream.h"

namespace belfry::test {

/// One that is launched with others in its own way, or where it is the CPU's up to three of an op, one after the other.
class JointOnStream : public OnStream, public LaunchesJointly {
 public:
  JointOnStream(const CudaDriver& driver, fake_cuda::Declare* declare, Touches touches, std::unique_ptr<Prepared> kernel)
      : OnStream(driver, declare, std::move(touches), std::move(kernel)), own_(dynamic_cast<LaunchesJointly*>(&inner())) {}
  const void* kind() const override {
    static std::set<std::string> names;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    return own_ ? own_->kind() : &*names.insert(touches().name()).first;
  }
  int most() const override { return own_ ? own_->most() : 3; }
  void prepare_joint() override {
    ++prepared;
    if (own_) own_->prepare_joint();
  }
  void finish_joint() override {
    if (own_) own_->finish_joint();
  }
  void launch_jointly(std::span<const One> all) override {
    std::vector<fake_cuda::Touched> touched;
    std::vector<std::pair<JointOnStream*, Arguments>> calls;
    for (const One& one : all) {
      calls.emplace_back(dynamic_cast<JointOnStream*>(one.kernel), *one.arguments);
      for (const fake_cuda::Touched& t : calls.back().first->touches().at(*one.arguments)) touched.push_back(t);
    }
    ++joint_launches;
    put(touched, all[0].arguments->stream, [own = own_, calls] {
      std::vector<One> inside;
      for (const auto& [kernel, arguments] : calls) {
        if (own) inside.push_back({kernel->own_, &arguments});
        else kernel->inner().launch(arguments);
      }
      if (own) own->launch_jointly(inside);
    });
  }
  static inline std::atomic<int> joint_launches = 0;  ///< that were put on streams
  static inline std::atomic<int> prepared = 0;        ///< kernels that were told of a launch with others

 private:
  LaunchesJointly* own_;
};

}  // namespace belfry::test
