// Forecasts beside what others published of machines with several GPUs: images a second, scalars that were calibrated on one and
// two GPUs; with --auto what `auto` takes, how much faster its forecast is than that of what they took, and the critical paths of
// both. published [--auto]
#include <chrono>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "published.h"

using namespace belfry;
using namespace belfry::test;

namespace {

constexpr const char* kClusters = BELFRY_SOURCE "/clusters";

void print(const Published& p, bool with_auto) {
  PublishedForecast f(p, kClusters);
  const Reached reached = f.calibrate();
  fmt::print("\n{}, {}, {}: kernels reach {:.3f} of the peak, moves {:.2f} of the links, overlap {:.2f}\n", p.machine, p.net, p.mirrored ? "variables mirrored" : "variables on the CPU", reached.kernels, reached.links, reached.overlap);
  for (const Figure& at : p.figures) {
    const double images = f.images(at, reached);
    const bool calibrated = at.rows == p.figures[0].rows && at.gpus <= 2;
    fmt::print("  {} GPUs, {:3} rows each: published {:8.1f} img/s, forecast {:8.1f}, {:+6.1f} %{}", at.gpus, at.rows, at.images, images, 100 * (images / at.images - 1), calibrated ? "  calibrated" : "");
    if (with_auto && at.gpus > 2) {
      const auto begin = std::chrono::steady_clock::now();
      const PublishedForecast::Chosen c = f.chosen(at, reached);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      fmt::print("\n    auto, in {:.1f} s: {} ({:+.1f} %)\n    path: {}; of auto's {}", took.count(), c.name, 100 * (c.images / images - 1),
                 f.path(at, reached), c.path);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool with_auto = argc > 1 && !std::strcmp(argv[1], "--auto");
  Reached vgg;
  for (const Published& p : published()) {
    print(p, with_auto);
    if (p.net == "vgg16") vgg = PublishedForecast(p, kClusters).calibrate();
  }
  fmt::print("\nHorovod, 128 x 4 Pascal: one GPU's step beside the step of 512, 64 rows each, overlap as of VGG-16 on the DGX-1\n");
  for (const Scaled& h : horovod())
    for (bool whole : {true, false}) {
      fmt::print("  {:10} published {:.0f} %, forecast {:5.1f} %{}\n", h.net, 100 * h.share, 100 * scaling(h, kClusters, vgg, whole), whole ? ", the GPUs of a host as one" : ", every GPU for itself");
      std::fflush(stdout);
    }
}
