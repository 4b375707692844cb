// Random legal interleavings of four plans under the race detector: interleavings [COUNT]
#include <cstdlib>

#include <fmt/format.h>

#include "interleavings.h"

int main(int argc, char** argv) {
  using namespace belfry::test;
  int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  bool right = true;
  for (const InterleavedPlan& p : interleaved_plans()) {
    Interleaver plan(p);
    Counted c = plan.interleave(count), late = plan.delay(20);
    fmt::print("{:10} {:9} T {} on {} devices: {} steps; {} interleavings, {} of them different, {} races, {} wrong; {} seeds of delays with threads, {} wrong\n", p.net, p.strategy, p.towers, p.devices, c.steps,
               c.runs, c.orders, c.races, c.wrong, late.runs, late.wrong);
    right = right && !c.races && !c.wrong && !late.wrong;
  }
  return right ? 0 : 1;
}
