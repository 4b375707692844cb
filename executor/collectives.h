// Joins that a library's collectives make: the ranks of a step, and what each gives and gets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <belfry/executor/device/communicator.h>
#include <belfry/executor/kernel.h>
#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// One communicator per set of devices, and the steps of each collective node by rank.
class Collectors {
 public:
  using Open = std::function<std::shared_ptr<Communicator>(const std::vector<int>& devices)>;
  /// UserError ("unbound: …") where one thread serves two devices. That all come to their collectives in one order is the plan's (`legal_order`).
  Collectors(const BoundPlan& bound, const Open& open);

  /// `address` of what the plan says; `kernels` add up what a rank has in several parts.
  std::unique_ptr<Prepared> kernel(const Step& step, const std::function<std::byte*(const BufferRef&)>& address, const KernelTable& kernels) const;
  const std::vector<std::shared_ptr<Communicator>>& all() const { return all_; }

 private:
  const BoundPlan& bound_;
  std::vector<std::shared_ptr<Communicator>> all_;
  std::map<int, std::shared_ptr<Communicator>> of_node_;
  std::map<int, std::map<int, const Step*>> steps_;  // node → device → step
};

}  // namespace belfry
