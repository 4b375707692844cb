#include "layouts.h"

#include <belfry/graph/device_id.h>

namespace belfry::test {

std::vector<Layout> layouts(const std::string& two, const std::string& four, int towers) {
  const std::vector<DeviceId> pair = parse_devices(two), all = parse_devices(four), servers = parse_devices("cpu:0-1");
  const DeviceId gpu = parse_device("gpu:0");
  const std::string logical = "gpu:0/0,gpu:0/1", first = to_string(pair.at(0)), servers_too = two + ",cpu:0-1";
  const bool groups = all.at(0).index != all.at(2).index;  // else one GPU has them all
  auto layers = [&](const std::vector<DeviceId>& devices, PhaseOrder order, int replicas = 1, int chunks = 1) {
    return to_strategy(Layers{.devices = devices, .towers = towers, .replicas = replicas, .order = order, .chunks = chunks, .threads = 1, .cut = LayerCut::variables});
  };
  return {
      {"one GPU", "gpu:0", to_strategy(Single{.device = gpu, .towers = towers, .threads = 1})},
      {"variables on the host", two, to_strategy(Towers{.devices = pair, .variables = cpu(0), .towers = towers, .threads = 1})},
      {"variables on a GPU", two, to_strategy(Towers{.devices = pair, .variables = pair[0], .towers = towers, .threads = 1})},
      {"a GPU beside the CPU", first + ",cpu:0", to_strategy(Towers{.devices = {pair[0], cpu(0)}, .variables = cpu(0), .towers = towers, .threads = 1}), true, true},
      {"mirrored", two, to_strategy(Mirrored{.devices = pair, .towers = towers, .threads = 1})},
      {"mirrored over logical devices", logical, to_strategy(Mirrored{.devices = parse_devices(logical), .towers = towers, .threads = 1})},
      {"sharded", two, to_strategy(Sharded{.devices = pair, .towers = towers, .threads = 1})},
      {"mirrored over four", four, to_strategy(Mirrored{.devices = all, .towers = towers, .threads = 1})},
      {groups ? "by groups and in buckets" : "in buckets", four, to_strategy(Mirrored{.devices = all, .towers = towers, .threads = 1, .reduction = groups ? Reduce::hierarchical : Reduce::tree, .bucket = 512})},
      {"layers", two, to_strategy(Layers{.devices = pair, .towers = towers, .threads = 1, .cut = LayerCut::variables})},
      {"pipeline", two, layers(pair, PhaseOrder::one_f_one_b)},
      {"pipeline over four", four, layers(all, PhaseOrder::one_f_one_b)},
      {"gpipe", two, layers(pair, PhaseOrder::gpipe)},
      {"interleaved", two, layers(pair, PhaseOrder::interleaved, 1, 2)},
      {"hybrid", four, layers(all, PhaseOrder::one_f_one_b, 2)},
      {"spread", two, to_strategy(Towers{.devices = pair, .spread = true, .towers = towers, .threads = 1})},
      {"chosen", two, to_strategy(Towers{.devices = pair, .towers = towers, .threads = 1, .chosen = true})},
      {"reduce to one", two, to_strategy(Mirrored{.devices = pair, .towers = towers, .threads = 1, .reduction = Reduce::to_one})},
      {"parameter servers", servers_too, to_strategy(ParameterServer{.devices = pair, .servers = servers, .towers = towers, .threads = 1})},
      {"parameter servers on GPUs", four, to_strategy(ParameterServer{.devices = {all.at(0), all.at(2)}, .servers = {all.at(1), all.at(3)}, .towers = towers, .threads = 1})},
      {"auto", two, to_strategy(Auto{.devices = pair, .towers = towers, .threads = 1})},
      {"ring", four, to_strategy(Mirrored{.devices = all, .towers = towers, .threads = 1, .reduction = Reduce::ring, .bucket = 0}), false},
      {"ring of ranges", four, to_strategy(Sharded{.devices = all, .towers = towers, .threads = 1, .reduction = Reduce::ring}), false},
  };
}

}  // namespace belfry::test
