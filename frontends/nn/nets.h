// Whole nets by name: graphs with loss, metrics and optimizer, for examples, benchmarks and `belfry train NAME`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <belfry/frontends/nn/layers.h>

namespace belfry {

struct NetDef {
  std::string name, help;
  std::function<Graph(std::shared_ptr<const OpSet> ops)> build;
};

/// Feeds of all: "image" f32 (batch, 28, 28, 1) in [0, 1], "label" i32 (batch). Output "logits", metric "accuracy".
const std::vector<NetDef>& standard_nets();
/// UserError with the known names.
const NetDef& net_named(const std::string& name);

}  // namespace belfry
