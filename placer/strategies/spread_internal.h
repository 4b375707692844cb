// Variables over several devices by their bytes: what strategies with shared variables have in common.
#pragma once

#include <vector>

#include <belfry/placer/strategy.h>

namespace belfry {

/// Behind the rules of `before`: the largest variables first, each with its slots and its update to the device that has least;
/// what several devices' variables share to the first.
Rules spread_over(const std::vector<DeviceId>& devices, const TowerGraph& tg, Rules before);

}  // namespace belfry
