// A GPU for which cuDNN makes plans where there is none.
#pragma once

#include <memory>
#include <string>

#include <belfry/ops/cuda/cudnn_internal.h>

namespace belfry::test {

/// An H100 as a file describes it, or what an A100 has instead; null where cuDNN is not at hand, with the reason.
std::shared_ptr<cudnn::Target> described(std::string& why, bool a100 = false);

}  // namespace belfry::test
