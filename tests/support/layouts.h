// Every strategy over two and four GPUs, whole or logical.
#pragma once

#include <string>
#include <vector>

#include <belfry/placer/strategies/strategies.h>

namespace belfry::test {

struct Layout {
  std::string name, devices;
  Strategy strategy;
  bool bits = true;      ///< of one GPU, promised
  bool on_cpu = false;   ///< some towers compute there
};

/// `two` and `four` name GPUs one by one.
std::vector<Layout> layouts(const std::string& two, const std::string& four, int towers);

}  // namespace belfry::test
