// The texts of generated kernels, without a GPU and without compiling them: of any requests, and of the nodes of the nets.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include <belfry/executor/kernel.h>
#include <belfry/graph/dtype.h>
#include <belfry/ops/cuda/code_internal.h>

namespace belfry::test {

/// Who asks for a text.
struct AskedFor {
  std::string kernel;          ///< the first
  std::set<std::string> ops;
};

/// Keeps the texts that it is asked to compile. What it gives cannot be launched.
struct CollectedTexts : GpuCode {
  std::shared_ptr<GpuFunction> make(const std::string& source, const std::string& entry, std::size_t words) override;
  AskedFor asking;
  std::map<std::string, AskedFor> texts;
};
/// The generated kernels: what a request chooses is prepared at once.
KernelTable collecting(const std::shared_ptr<CollectedTexts>& code);

struct NodesOfNet {
  int nodes = 0, with = 0;             ///< a generated kernel
  std::map<std::string, int> without;  ///< by op
};
/// One step of training of 32 rows on one device, or the net for inference.
NodesOfNet look_at(const std::string& net, DType precision, bool training, const KernelTable& table);

}  // namespace belfry::test
