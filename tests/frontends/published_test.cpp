#include <gtest/gtest.h>

#include <cmath>

#include "published.h"

namespace belfry::test {
namespace {

constexpr const char* kClusters = BELFRY_SOURCE "/clusters";

/// docs/forecast.md says what is missing where it is not.
TEST(Published, machines_are_forecast_within_a_tenth_from_one_and_two_gpus) {
  Reached vgg16;
  for (const Published& p : published()) {
    if (p.net == "mobilenet_v2") continue;
    PublishedForecast f(p, kClusters);
    const Reached reached = f.calibrate();
    if (p.net == "vgg16") vgg16 = reached;
    for (const Figure& at : p.figures) {
      if (p.mirrored && at.gpus == 4) {
        EXPECT_EQ(f.chosen(at, reached).name, "mirrored") << "what those who measured took for " << p.net;
      }
      if (p.net == "alexnet" && at.gpus == 8) continue;
      EXPECT_LT(std::abs(f.images(at, reached) / at.images - 1), 0.10) << p.machine << ", " << p.net << " on " << at.gpus << " GPUs: " << f.images(at, reached) << " images a second";
    }
  }
  for (const Scaled& h : horovod()) EXPECT_LT(std::abs(scaling(h, kClusters, vgg16, true) / h.share - 1), 0.10) << h.net << " on 512 GPUs";
}

}  // namespace
}  // namespace belfry::test
