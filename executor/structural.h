// The kernels of structural nodes: copies, splits, joins, stores; between memory spaces by a device's queue.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <belfry/executor/device/device.h>
#include <belfry/executor/kernel.h>
#include <belfry/graph/plan/bound_plan.h>

namespace belfry {

/// How a step comes by its parts. On a device that works by itself everything is put on its own queue. A step of the host
/// that reads a device's memory has it carried by a queue of that device, and waits.
struct Carriers {
  bool own = false;             ///< the step is a device's: its arguments have the queue
  std::vector<Queue*> of_part;  ///< per part of its first input; null: it is read where it lies
};

/// `kernels` has the sums of devices that work by themselves. UserError ("unbound: …") where the plan's scratch cannot hold the parts that a sum must land.
std::unique_ptr<Prepared> structural_kernel(const BoundPlan& bound, const Step& step, const Carriers& carriers, const KernelTable* kernels);

}  // namespace belfry
