#include "published.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/placement_file.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/plan/forecast.h>
#include <belfry/graph/plan/links.h>
#include <belfry/placer/choose.h>

namespace belfry::test {

namespace {

/// Document E's: the whole of MobileNetV2 is trained, below a head of its own.
Value cats_and_dogs(Value image) {
  Value x = global_avg_pool2d(nn::mobilenet_v2(image, {.include_top = false}));
  x = nn::dropout(nn::dense(x, {.units = 512, .activation = Activation::relu}), {.rate = 0.5});
  return nn::dense(x, {.units = 2});
}

Graph graph_of(const std::string& net, std::int64_t image, const std::shared_ptr<const OpSet>& ops) {
  Builder b(net, ops);
  Value pictures = random_uniform(b.seed(), b.step(), {kBatch, image, image, 3}), label = b.input("label", i32, {kBatch});
  Value logits = net == "alexnet" ? nn::alexnet(pictures) : net == "inception_v3" ? nn::inception_v3(pictures) : net == "resnet50" ? nn::resnet50(pictures)
               : net == "resnet101" ? nn::resnet101(pictures) : net == "vgg16" ? nn::vgg16(pictures) : cats_and_dogs(pictures);
  Value loss = mean(sparse_softmax_cross_entropy(logits, label));
  if (net == "mobilenet_v2") b.minimize(loss, Adam{});
  else b.minimize(loss, Sgd{.learning_rate = 0.01});
  return std::move(b).build();
}

std::vector<DeviceId> gpus_of(const Cluster& cluster, int most) {
  std::vector<DeviceId> out;
  for (const ClusterDevice& d : cluster.devices)
    if (d.id.kind == "gpu" && static_cast<int>(out.size()) < most) out.push_back(d.id);
  return out;
}

Strategy strategy_of(const std::vector<DeviceId>& devices, bool mirrored) {
  if (!mirrored) return to_strategy(Towers{.devices = devices});
  return devices.size() == 1 ? to_strategy(Single{.device = devices[0]}) : to_strategy(Mirrored{.devices = devices, .collectives = Collectives::fastest});
}

/// Where a growing function of x reaches `wanted`, between the ends.
double solve(double low, double high, double wanted, const std::function<double(double)>& f) {
  for (int k = 0; k < 24; ++k) {
    const double middle = std::sqrt(low * high);
    (f(middle) < wanted ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

Cluster slowed(Cluster c, const Reached& reached) {
  for (ClusterDevice& d : c.devices)
    if (d.id.kind == "gpu") d.efficiency = reached.kernels, d.overlap = reached.overlap;
  for (ClusterLink& l : c.links) l.bandwidth *= reached.links;
  return c;
}

/// Of kernels by what they are launched on, and moves.
std::string path_text(const PlacedGraph& plan, const Forecast& f) {
  double gpus = 0, host = 0, moves = 0;
  for (const PathShare& s : path_shares(plan, f)) (s.device.starts_with("gpu") ? gpus : host) += s.seconds - s.moving, moves += s.moving;
  return fmt::format("{:.1f} ms = {:.1f} on GPUs + {:.1f} on the host + {:.1f} moves", 1e3 * f.seconds, 1e3 * gpus, 1e3 * host, 1e3 * moves);
}

}  // namespace

const std::vector<Published>& published() {
  // TensorFlow's benchmarks of May 2017, synthetic data, and the runs behind document E by their steps.
  static const std::vector<Published> all = {
      {"DGX-1, P100", "p100x8.json", "resnet50", 224, false, {{1, 64, 219}, {2, 64, 422}, {4, 64, 852}, {8, 64, 1734}}},
      {"DGX-1, P100", "p100x8.json", "inception_v3", 299, false, {{1, 64, 142}, {2, 64, 284}, {4, 64, 569}, {8, 64, 1131}}},
      {"DGX-1, P100", "p100x8.json", "vgg16", 224, true, {{1, 64, 154}, {2, 64, 295}, {4, 64, 584}, {8, 64, 1081}}, true},
      {"DGX-1, P100", "p100x8.json", "alexnet", 227, true, {{1, 512, 2987}, {2, 512, 5658}, {4, 512, 10509}, {8, 512, 17822}}, true},
      {"8 x K80", "k80x8.json", "resnet50", 224, false, {{1, 64, 51.9}, {2, 64, 99.0}, {4, 64, 195}, {8, 64, 387}}},
      {"4 x K80, document E", "k80x4.json", "mobilenet_v2", 224, true, {{1, 32, 32 / 0.3575}, {4, 16, 64 / 0.340}, {4, 32, 128 / 0.575}}}};
  return all;
}

PublishedForecast::PublishedForecast(const Published& what, const std::string& clusters) : what_(what), cluster_(read_cluster(read_file(clusters + "/" + what.cluster), what.cluster)) {}

Cluster PublishedForecast::cluster(const Reached& reached) const { return slowed(cluster_, reached); }

/// Each hop of a ring carries what each of its GPUs has to send to a switch, were there one: as wide as the narrowest hop.
Cluster PublishedForecast::measured(int gpus, const Reached& reached) const {
  Cluster out = cluster(reached);
  if (!what_.one_ring || gpus < 2) return out;
  const std::vector<DeviceId> ring = gpus_of(out, gpus);
  Links links(out);
  ClusterLink hop{ring, "ring", std::numeric_limits<double>::infinity(), 0};
  for (std::size_t i = 0; i < ring.size(); ++i)
    for (int w : links.route(out.at(ring[i]), out.at(ring[(i + 1) % ring.size()]))) {
      const Way& way = links.ways()[static_cast<std::size_t>(w)];
      hop.bandwidth = std::min(hop.bandwidth, way.bandwidth), hop.latency = std::max(hop.latency, way.latency);
    }
  std::erase_if(out.links, [](const ClusterLink& l) { return l.to.starts_with("gpu:"); });
  out.links.insert(out.links.begin(), hop);
  return out;
}

const PlacedGraph& PublishedForecast::plan(const Figure& at, const Reached& reached) {
  auto same = [&](const auto& p) { return p.first.gpus == at.gpus && p.first.rows == at.rows; };
  auto known = std::find_if(plans_.begin(), plans_.end(), same);
  if (known == plans_.end()) {
    Session session(graph_of(what_.net, what_.image, library_->ops), strategy_of(gpus_of(cluster_, at.gpus), what_.mirrored), {.library = library_, .cluster = cluster_, .forecast = true});
    plans_.emplace_back(at, session.plan(at.gpus * at.rows));
    known = plans_.end() - 1;
  }
  known->second.cluster = measured(at.gpus, reached);
  return known->second;
}

double PublishedForecast::images(const Figure& at, const Reached& reached) { return static_cast<double>(at.gpus * at.rows) / forecast(plan(at, reached)).seconds; }

std::string PublishedForecast::path(const Figure& at, const Reached& reached) {
  const PlacedGraph& p = plan(at, reached);
  return path_text(p, forecast(p));
}

Reached PublishedForecast::calibrate() {
  const Figure& one = what_.figures.at(0);
  const Figure& two = what_.figures.at(1);
  Reached out{.overlap = cluster_.devices[static_cast<std::size_t>(cluster_.at(gpus_of(cluster_, 1).at(0)))].overlap};
  for (int round = 0; round < 3; ++round) {
    out.kernels = solve(0.01, 10, one.images, [&](double x) { return images(one, {x, out.links, out.overlap}); });
    if (two.gpus != 2 || two.rows != one.rows) break;
    double& second = what_.mirrored ? out.overlap : out.links;
    auto at_second = [&](double x) {
      second = x;
      return images(two, out);
    };
    second = at_second(1) <= two.images ? 1 : solve(0.01, 1, two.images, at_second);
  }
  return out;
}

PublishedForecast::Chosen PublishedForecast::chosen(const Figure& at, const Reached& reached) {
  Session session(graph_of(what_.net, what_.image, library_->ops), to_strategy(Auto{.devices = gpus_of(cluster_, at.gpus)}), {.library = library_, .cluster = cluster(reached), .forecast = true});
  const PlacedGraph& plan = session.plan(at.gpus * at.rows);
  const Forecast f = forecast(plan);
  return {describe(session.strategy()), static_cast<double>(at.gpus * at.rows) / f.seconds, path_text(plan, f)};
}

const std::vector<Scaled>& horovod() {
  static const std::vector<Scaled> all = {{"resnet101", 0.90}, {"vgg16", 0.68}};
  return all;
}

double scaling(const Scaled& what, const std::string& clusters, const Reached& vgg16, bool whole_hosts) {
  Cluster cluster = read_cluster(read_file(clusters + "/pascal128x4.json"), "pascal128x4.json");
  const auto on_host = whole_hosts ? std::count_if(cluster.devices.begin(), cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "gpu" && d.id.host == 0; }) : 1;
  auto stays = [&](const DeviceId& id) { return !whole_hosts || id.kind != "gpu" || id.index == 0; };
  std::erase_if(cluster.devices, [&](const ClusterDevice& d) { return !stays(d.id); });
  for (ClusterLink& l : cluster.links) std::erase_if(l.devices, [&](const DeviceId& id) { return !stays(id); });
  for (ClusterDevice& d : cluster.devices) {
    if (d.id.kind != "gpu") continue;
    d.flops *= static_cast<double>(on_host), d.bandwidth *= static_cast<double>(on_host), d.memory *= on_host;
    if (what.net == "vgg16") d.efficiency = vgg16.kernels;
    d.overlap = vgg16.overlap;
  }
  const auto library = standard_library();
  auto seconds = [&](int most) {
    const std::vector<DeviceId> gpus = gpus_of(cluster, most);
    Session session(graph_of(what.net, 224, library->ops), strategy_of(gpus, true), {.library = library, .cluster = cluster, .forecast = true});
    return forecast(session.plan(64 * on_host * static_cast<std::int64_t>(gpus.size()))).seconds;
  };
  return seconds(1) / seconds(1 << 20);
}

}  // namespace belfry::test
