// A GPU for which cuDNN makes plans where there is none.
#pragma once

#include <memory>
#include <string>

#include <belfry/ops/cuda/cudnn_internal.h>

namespace belfry::test {

/// An H100 (sm_90) as a file describes it, or what an A100 (sm_80) or a B200 (sm_100) has instead; null where cuDNN is not at hand, with the reason.
std::shared_ptr<cudnn::Target> described(std::string& why, int sm = 90);

}  // namespace belfry::test
