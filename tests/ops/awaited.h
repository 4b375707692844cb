// Kernels that an op's cases reach, prepared, with what they shall give: run on the host's memory or a device's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/device/device.h>
#include <belfry/executor/kernel.h>

#include "op_case.h"

namespace belfry::test {

/// A kernel that was prepared, and what it shall give. Texts are compiled between preparing and running, all at once.
struct Awaited {
  std::string what, by;  ///< by: the kernel's name
  double tolerance = 0;
  std::shared_ptr<Attributes> attributes;
  KernelRequest request;
  std::vector<bool> given;
  std::vector<HostTensor> inputs, wanted;
  std::int64_t scratch = 0;
  bool in_place = false;
  std::shared_ptr<Prepared> kernel;

  /// Of what it reads and gives.
  std::size_t bytes() const {
    std::size_t out = 0;
    for (const auto* tensors : {&inputs, &wanted})
      for (const HostTensor& t : *tensors) out += t.bytes().size();
    return out;
  }
};

/// Every kernel of the table that accepts a case, prepared on this thread; one that cannot be is a failure, and left out.
void await(const KernelTable& table, const OpDef& def, const OpCase& c, std::int64_t batch, bool all_read, std::vector<Awaited>& out);
/// The same for all cases of an op: with and without the outputs that may be left out, the first also in f64 and of one row.
void await_all(const KernelTable& table, const OpDef& def, std::vector<Awaited>& out);
/// Every engine of a library that a plan may name for a case, of kernels that multiply f32 as f32.
void await_engines(const KernelTable& table, const OpDef& def, const OpCase& c, std::int64_t batch, std::vector<Awaited>& out);
/// Kernels of the table that no case of their op reaches; nothing is prepared.
std::vector<std::string> unreached(const KernelTable& table, const OpSet& ops);

/// Memory of a device and what it runs on; none: the host's, at once.
struct On {
  Device* device = nullptr;
  Queue* queue = nullptr;
  std::size_t past = 0;  ///< a multiple of 16 that inputs and outputs lie so many bytes past; the host's only
};
/// Output k on the bytes of input i where they are given.
std::vector<HostTensor> run(const Awaited& w, const On& on = {}, std::pair<int, int> alias = {-1, -1});
/// Also over the inputs that the op and the kernel allow. Gives what it gave beside them.
std::vector<HostTensor> expect_as_wanted(const Awaited& w, const On& on = {});

}  // namespace belfry::test
