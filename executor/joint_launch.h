// Launches that can be one: kernels that take a table of what each of several nodes has.
#pragma once

#include <span>

#include <belfry/executor/kernel.h>

namespace belfry {

/// What a kernel is besides that can do the work of others of its kind in one launch, each with the bits that it has alone.
class LaunchesJointly {
 public:
  struct One {
    LaunchesJointly* kernel;
    const Arguments* arguments;
  };
  virtual ~LaunchesJointly() = default;
  /// The same for kernels that can be launched together.
  virtual const void* kind() const = 0;
  virtual int most() const = 0;                          ///< so many
  virtual void prepare_joint() = 0;                      ///< before the first launch; not while a stream is captured
  virtual void finish_joint() = 0;                       ///< once all are prepared
  /// Of one kind, none of which reads or writes what another one writes; on the stream of the first.
  virtual void launch_jointly(std::span<const One> all) = 0;
};

}  // namespace belfry
