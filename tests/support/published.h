// What others published of training on machines with several GPUs, and Belfry's forecast of the same, calibrated on one and two.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/belfry.h>

namespace belfry::test {

/// Images a second on so many GPUs with so many rows each.
struct Figure {
  int gpus = 0;
  std::int64_t rows = 0;
  double images = 0;
};

/// One net on one machine. The first figure is of one GPU; one of two GPUs with as many rows, if there is one, is calibrated on too.
struct Published {
  std::string machine, cluster;        ///< a file of clusters/
  std::string net;
  std::int64_t image = 224;
  bool mirrored = false;               ///< how it was measured: variables on every GPU, else on the CPU
  std::vector<Figure> figures;
  bool one_ring = false;               ///< NCCL 1, which adds along one ring in the order of the GPUs' numbers, whatever joins them
};
const std::vector<Published>& published();

/// Scalars of a machine and net: the share of a GPU's peaks that kernels reach, and with variables on the CPU the share of the
/// links' bandwidth that moves reach, with mirrored ones the share of a collective's time in which kernels go on beside it.
struct Reached {
  double kernels = 1, links = 1, overlap = 1;
};

/// Forecasts of a published net with synthetic pictures, drawn on each GPU: nothing is fed.
class PublishedForecast {
 public:
  /// `clusters`: the folder of the files.
  PublishedForecast(const Published& what, const std::string& clusters);

  /// Of the figures on one and two GPUs. What comes out above 1 is 1.
  Reached calibrate();
  /// Images a second.
  double images(const Figure& at, const Reached& reached);
  /// What the step's critical path is made of.
  std::string path(const Figure& at, const Reached& reached);
  /// What `auto` takes, with its options, the images a second of that, and its path.
  struct Chosen {
    std::string name;
    double images = 0;
    std::string path;
  };
  Chosen chosen(const Figure& at, const Reached& reached);

 private:
  Cluster cluster(const Reached& reached) const;
  /// The same for what was measured: on so many GPUs.
  Cluster measured(int gpus, const Reached& reached) const;
  const PlacedGraph& plan(const Figure& at, const Reached& reached);

  const Published& what_;
  Cluster cluster_;
  std::shared_ptr<const Library> library_ = standard_library();
  std::vector<std::pair<Figure, PlacedGraph>> plans_;
};

/// Horovod's scaling on 128 hosts of four Pascal GPUs: the step of one GPU beside that of 512.
struct Scaled {
  std::string net;
  double share = 0;
};
const std::vector<Scaled>& horovod();

/// Its forecast, 64 rows a GPU, all variables mirrored. `vgg16` are that net's scalars on the DGX-1, whose GPUs are of the same
/// kind: the overlap is taken for all nets. `whole_hosts`: the GPUs of a host as one with their rates added up, so that a collective
/// crosses a host's port once.
double scaling(const Scaled& what, const std::string& clusters, const Reached& vgg16, bool whole_hosts);

}  // namespace belfry::test
