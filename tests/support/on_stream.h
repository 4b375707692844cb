// Kernels of the host as steps of the fake driver's streams, with what they touch.
#pragma once

#include <cstddef>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/executor/device/faults.h>
#include <belfry/executor/kernel.h>
#include <belfry/executor/program.h>
#include <belfry/graph/op_def.h>

#include "fake_cuda/fake_cuda.h"

namespace belfry::test {

/// What a launch touches, for the driver's race check.
class Touches {
 public:
  Touches(const Kernel& kernel, const KernelRequest& r) : name_(r.op), scratch_(static_cast<std::size_t>(kernel.supports(r).scratch_bytes)) {
    for (std::size_t i = 0; i < r.inputs.size(); ++i)
      inputs_.push_back(r.def && i < r.def->inputs.size() && r.def->inputs[i].shape_only ? 0 : static_cast<std::size_t>(r.inputs[i].bytes()));
    for (const LocalType& t : r.outputs) outputs_.push_back(static_cast<std::size_t>(t.bytes()));
  }
  const char* name() const { return name_.c_str(); }
  std::vector<fake_cuda::Touched> at(const Arguments& a) const {
    std::vector<fake_cuda::Touched> out;
    for (std::size_t i = 0; i < a.inputs.size(); ++i)
      if (a.inputs[i]) out.push_back({a.inputs[i], inputs_[i], false});
    for (std::size_t k = 0; k < a.outputs.size(); ++k)
      if (a.outputs[k]) out.push_back({a.outputs[k], outputs_[k], true});
    if (a.scratch) out.push_back({a.scratch, scratch_, true});
    return out;
  }

 private:
  std::string name_;
  std::size_t scratch_;
  std::vector<std::size_t> inputs_, outputs_;
};

/// A kernel of the host that runs when its turn on the stream has come.
class OnStream : public Prepared {
 public:
  OnStream(const CudaDriver& driver, fake_cuda::Declare* declare, Touches touches, std::unique_ptr<Prepared> kernel)
      : driver_(driver), declare_(declare), touches_(std::move(touches)), kernel_(std::move(kernel)) {}
  void launch(const Arguments& a) override {
    auto touched = touches_.at(a);
    if (also.at) touched.push_back(also);
    put(touched, a.stream, [kernel = kernel_.get(), a] { kernel->launch(a); });
  }

 protected:
  Prepared& inner() const { return *kernel_; }
  const Touches& touches() const { return touches_; }
  void put(const std::vector<fake_cuda::Touched>& touched, void* stream, std::function<void()> call) {
    calls_.push_back(std::move(call));  // kept: a recorded one runs again
    CUhostFn run = [](void* p) {
      try {
        (*static_cast<std::function<void()>*>(p))();
      } catch (const std::exception& e) {  // of what a race has left there; a stream has nobody to tell
        std::fprintf(stderr, "a kernel on a stream: %s\n", e.what());
      }
    };
    declare_(touches_.name(), touched.data(), touched.size());
    check_driver(driver_, driver_.cuLaunchHostFunc(static_cast<CUstream>(stream), run, &calls_.back()), "cuLaunchHostFunc");
  }
  fake_cuda::Touched also{};

 private:
  const CudaDriver& driver_;
  fake_cuda::Declare* declare_;
  Touches touches_;
  std::unique_ptr<Prepared> kernel_;
  std::deque<std::function<void()>> calls_;
};

/// One that finds faults: its word is touched besides.
class WatchedOnStream : public OnStream, public FindsFaults {
 public:
  using OnStream::OnStream;
  void watch(std::uint64_t* word) override {
    also = {word, sizeof *word, true};
    finds().watch(word);
  }
  std::string fault(std::uint64_t word) const override { return finds().fault(word); }

 private:
  FindsFaults& finds() const { return dynamic_cast<FindsFaults&>(inner()); }
};

/// A kernel of the host's own nodes, which says what it touches.
class OnHost : public Prepared {
 public:
  OnHost(fake_cuda::Host* host, Touches touches, std::unique_ptr<Prepared> kernel) : host_(host), touches_(std::move(touches)), kernel_(std::move(kernel)) {}
  void launch(const Arguments& a) override {
    const auto touched = touches_.at(a);
    host_(touches_.name(), touched.data(), touched.size());
    kernel_->launch(a);
  }

 private:
  fake_cuda::Host* host_;
  Touches touches_;
  std::unique_ptr<Prepared> kernel_;
};

}  // namespace belfry::test
