// Convolutions of pictures with few channels, run on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>

#include "awaited.h"
#include "gpu_cases.h"
#include "host_gpu.h"

namespace belfry::test {
namespace {

/// Of both directions, the cases that are theirs.
struct FewChannels : testing::Test {
  FewChannels() {
    for (const char* op : {"conv2d", "conv2d_filter_gradient"})
      for (const OpCase& c : gpu_cases(op))
        if (c.name.starts_with("few channels")) await(table, ops.at(op), c, 3, true, all), ++cases;
    std::erase_if(all, [](const Awaited& w) { return w.by != "nvrtc_few_channels" && w.by != "nvrtc_few_channels_tf32"; });
  }
  std::shared_ptr<HostGpu> host = std::make_shared<HostGpu>();
  KernelTable table = generated_kernels(host);
  OpSet ops = standard_ops();
  std::vector<Awaited> all;
  std::size_t cases = 0;
};

/// Nothing is rounded to TF32 on the host: which lane has which element is held to the reference like any sum of f32.
TEST_F(FewChannels, multiply_what_they_should_at_any_address) {
  EXPECT_EQ(all.size(), cases);
  host->build();
  for (Awaited& w : all) {
    if (w.by.ends_with("_tf32")) w.tolerance = 1e-4;
    expect_as_wanted(w);
    for (std::size_t past : {4u, 8u})
      if (w.inputs[0].elements() < 1000) {
        EXPECT_EQ(run(w, {.past = past}), run(w)) << w.what << ", " << past << " bytes past";
      }
  }
}

}  // namespace
}  // namespace belfry::test
