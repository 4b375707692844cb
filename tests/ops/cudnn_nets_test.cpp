// What cuDNN is asked for by all nets has engines that fit in what plans reserve, on a GPU that is described.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/error.h>

#include "described_gpu.h"
#include "net_sequences.h"

namespace belfry::test {
namespace {

using namespace cudnn;

/// Engines of convolutions are there at once. Those of pools and norms are compiled, half a second for each form, so that of these one of forty is made here;
/// bench_cudnn makes all.
TEST(CudnnOfNets, HasEnginesWithinTheReserve) {
  std::string why;
  const auto target = described(why);
  if (!target) GTEST_SKIP() << why;
  std::map<std::string, Sequence> forms;
  for (const NetDef& net : standard_nets())
    for (auto& [key, form] : sequences_of(net.name).forms) forms.emplace(key, std::move(form.sequence));
  std::map<std::string, int> made, met;
  for (const auto& [what, sequence] : forms) {
    const std::string op = what.substr(0, what.find(' '));
    if (met[op]++ % (op.starts_with("conv") ? 1 : 40)) continue;
    try {
      for (const auto& engine : engines_of(sequence, target)) {
        EXPECT_LE(engine->facts().scratch_bytes, sequence.engine_bytes) << what << ": " << engine->facts().name;
        EXPECT_TRUE(engine->facts().deterministic) << what << ": " << engine->facts().name;
        EXPECT_FALSE(engine->facts().rounds_inputs || (engine->facts().tensor_cores && op.starts_with("conv"))) << what << ": " << engine->facts().name;
      }
      ++made[op];
    } catch (const DeviceError& e) {
      ADD_FAILURE() << what << ": " << e.what();
    }
  }
  for (const char* op : {"conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"}) EXPECT_GT(made[op], 150) << op;
  for (const char* op : {"batch_norm", "batch_norm_gradient", "avg_pool2d", "avg_pool2d_gradient"}) EXPECT_GT(made[op], 0) << op;
  for (const auto& [op, n] : met) RecordProperty(op, std::to_string(made[op]) + " of " + std::to_string(n));
}

}  // namespace
}  // namespace belfry::test
