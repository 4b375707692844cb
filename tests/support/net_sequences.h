// What cuDNN is asked for by the nets, convolutions and norms, and may be by name, pools: without a GPU.
#pragma once

#include <map>
#include <string>

#include <belfry/graph/dtype.h>
#include <belfry/ops/cuda/cudnn_sequence_internal.h>

namespace belfry::test {

/// A form: an op on some types.
struct NetSequence {
  std::string what;
  cudnn::Sequence sequence;
  int nodes = 0;
};

struct SequencesOfNet {
  std::map<std::string, NetSequence> forms;
  std::map<std::string, int> refused;  ///< by reason, also of products, which cuBLASLt takes
};

/// A training step of 32 rows, whole and as two towers.
SequencesOfNet sequences_of(const std::string& net, DType precision = f32);

}  // namespace belfry::test
