// Random legal interleavings of plans under the race detector, with every result compared: what a test and a bench share.
#pragma once

#include <set>

#include "plans.h"

namespace belfry::test {

struct InterleavedPlan {
  std::string net, strategy;
  int towers = 4, devices = 3, streams = 2;
  std::int64_t batch = 7;
};
inline const std::vector<InterleavedPlan>& interleaved_plans() {
  static const std::vector<InterleavedPlan> plans = {{"attention", "towers", 4, 3, 2, 7}, {"embedding", "mirrored", 6, 3, 2, 7}, {"decay", "gpipe", 4, 3, 1, 8}, {"tied", "1f1b", 4, 2, 1, 6}};
  return plans;
}

struct Counted {
  int runs = 0, races = 0, wrong = 0;
  std::size_t steps = 0, orders = 0;  ///< of one run; orders that differ
};

/// A prepared program of a plan with the interpreter's results.
class Interleaver {
 public:
  explicit Interleaver(const InterleavedPlan& p)
      : graph_(std::make_shared<const Graph>(training_graph(net(p.net)))),
        program_(std::make_shared<const PlacedGraph>(place(graph_, strategy_of(p), sim_cluster(p.devices, true, p.streams), p.batch, {.fetches = fetches_of(*graph_)})), reference_kernels()),
        start_(state_for(*graph_)), feeds_(feeds_for(*graph_, p.batch)) {
    for (int t = 0; t < static_cast<int>(program_.threads().size()); ++t) program_.prepare_thread(t);
    want_ = run_towers(expand(graph_, {.towers = p.towers, .batch = p.batch, .threads = 1, .fetches = fetches_of(*graph_)}), feeds_, start_);
  }

  Counted interleave(int count) {
    Runner runner(program_);
    Counted out;
    for (const auto& s : program_.bound().streams) out.steps += s.size();
    std::set<std::size_t> orders;
    for (int k = 0; k < count; ++k) {
      std::size_t order = 0;
      Watcher watcher(program_.bound());
      reset();
      Chooser choose = at_random(static_cast<std::uint64_t>(k) + 1);
      Outcome o = runner.run_interleaved(views(feeds_), [&](const std::vector<int>& ready) {
        int s = choose(ready);
        order = order * 1000003 + static_cast<std::size_t>(s) + 1;
        return s;
      }, &watcher);
      orders.insert(order);
      ++out.runs;
      out.races += !watcher.found().empty();
      out.wrong += !right(o);
    }
    out.orders = orders.size();
    return out;
  }

  /// With threads, every step delayed by a random time.
  Counted delay(int seeds) {
    Runner runner(program_);
    Counted out;
    for (int k = 1; k <= seeds; ++k) {
      reset();
      ++out.runs;
      out.wrong += !right(runner.run(views(feeds_), {.delays = static_cast<std::uint64_t>(k)}));
    }
    return out;
  }

 private:
  static Strategy strategy_of(const InterleavedPlan& p) {
    for (NamedStrategy& s : strategies(p.towers, p.devices))
      if (s.name == p.strategy) return s.strategy;
    throw InternalError("no strategy " + p.strategy);
  }
  void reset() {
    for (const auto& [name, value] : start_) program_.set_state(name, value);
  }
  bool right(const Outcome& o) const {
    bool out = !o.error;
    for (const auto& [name, value] : want_.fetched) out = out && o.fetched.at(name) == value;
    for (const auto& [name, value] : want_.state) out = out && program_.state(name) == value && program_.holders_agree(name);
    return out;
  }

  std::shared_ptr<const Graph> graph_;
  Program program_;
  Tensors start_, feeds_;
  Result want_;
};

}  // namespace belfry::test
