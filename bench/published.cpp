// Forecasts beside what others published of machines with several GPUs: images a second, scalars that were calibrated on one and
// two GPUs, and what `auto` takes beside what they took. published [--auto]
#include <cstring>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/placement_file.h>

#include "published.h"

using namespace belfry;
using namespace belfry::test;

namespace {

void print(const Published& p, bool with_auto) {
  PublishedForecast f(p, BELFRY_SOURCE "/clusters");
  const Reached reached = f.calibrate();
  fmt::print("\n{}, {}, {}: kernels reach {:.3f} of the peak, moves {:.2f} of the links, overlap {:.2f}\n", p.machine, p.net, p.mirrored ? "variables mirrored" : "variables on the CPU", reached.kernels, reached.links, reached.overlap);
  for (const Figure& at : p.figures) {
    const double images = f.images(at, reached);
    const bool calibrated = at.rows == p.figures[0].rows && at.gpus <= 2;
    fmt::print("  {} GPUs, {:3} rows each: published {:8.1f} img/s, forecast {:8.1f}, {:+6.1f} %{}", at.gpus, at.rows, at.images, images, 100 * (images / at.images - 1), calibrated ? "  calibrated" : "");
    if (with_auto && at.gpus > 2) fmt::print("  auto: {}", f.chosen(at, reached));
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
    if (p.net == "vgg16") vgg = PublishedForecast(p, BELFRY_SOURCE "/clusters").calibrate();
  }
  struct {
    const char* net;
    double kernels, share;  // 0: the file's
  } const horovod[] = {{"resnet101", 0, 0.90}, {"vgg16", vgg.kernels, 0.68}};
  fmt::print("\nHorovod, 128 x 4 Pascal: one GPU's step beside the step of 512, 64 rows each, overlap as of VGG-16 on the DGX-1\n");
  for (const auto& h : horovod) {
    Cluster cluster = read_cluster(read_file(BELFRY_SOURCE "/clusters/pascal128x4.json"), "pascal128x4.json");
    for (ClusterDevice& d : cluster.devices)
      if (d.id.kind == "gpu") d.efficiency = h.kernels > 0 ? h.kernels : d.efficiency, d.overlap = vgg.overlap;
    for (bool whole : {true, false}) {
      const double share = scaling(h.net, 64, cluster, whole);
      fmt::print("  {:10} published {:.0f} %, forecast {:5.1f} %{}\n", h.net, 100 * h.share, 100 * share, whole ? ", the GPUs of a host as one" : ", every GPU for itself");
      std::fflush(stdout);
    }
  }
}
