// A fused group with drawn values for what it reads from outside: computed as one, and by its members one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/graph/fusion_group.h>
#include <belfry/graph/host_tensor.h>

namespace belfry::test {

/// The members' ops of the groups of this kind that GPUs have kernels for.
std::vector<std::vector<std::string>> groups_with_elementwise(const Graph& graph);

struct DrawnGroup {
  /// Third outputs of nodes, variances and inverse deviations, are drawn above zero.
  DrawnGroup(const Graph& graph, const FusionGroup& group, std::int64_t rows);

  /// All values of the group, each buffer `past` elements behind a multiple of 64 bytes; value `which` over the bytes of input `over`, where one is named. What is not wanted has no buffer, and is zeros.
  std::vector<HostTensor> run(Prepared& kernel, std::int64_t scratch_bytes, std::size_t past = 0, int over = -1, std::size_t which = 0) const;

  /// The same by each member's own kernel of the table. `build` is called before the first launch.
  std::vector<HostTensor> one_by_one(const KernelTable& table, const std::function<void()>& build = {}) const;

  struct Alone {
    KernelRequest request;
    std::unique_ptr<Prepared> kernel;
    std::int64_t scratch_bytes;
  };
  /// All outputs of a launch; an input without elements is missing.
  using Launched = std::function<std::vector<HostTensor>(const Alone& kernel, std::vector<HostTensor>& inputs)>;
  /// Of each member.
  std::vector<Alone> own_kernels(const KernelTable& table) const;
  std::vector<HostTensor> one_by_one(const std::vector<Alone>& kernels, const Launched& launched = on_host) const;
  static std::vector<HostTensor> on_host(const Alone& kernel, std::vector<HostTensor>& inputs);

  const Graph& g;
  FusionGroup group;
  Share share;
  KernelRequest request;
  std::vector<HostTensor> inputs;
};

}  // namespace belfry::test
