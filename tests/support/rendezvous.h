// Whether a plan comes to its end where signals go through channels that hold one: what a transport without queues would do.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>

namespace belfry::test {

/// Each node has a channel to every stream that waits for it; its towers' signals go through it in their order. A step that is waited
/// for puts its signals, and its stream goes on only when each channel had room; a wait takes its signal out.
/// A wait for what a stream knows to be done, since it has waited for a later step of that stream, needs no signal.
/// `one_each`: one channel per pair of streams, which all nodes share. No plan promises to end then: a reader may want a later value first.
class Rendezvous {
 public:
  explicit Rendezvous(const BoundPlan& bound, bool one_each = false) : bound_(bound), one_each_(one_each), at_(bound.streams.size()) {
    for (const auto& steps : bound.streams) {
      std::map<int, int> known;
      for (const Step& step : steps)
        for (const StepWait& w : step.waits)
          if (w.count > std::exchange(known[w.stream], std::max(known[w.stream], w.count))) {
            waits_[{step.stream, step.sequence}].push_back(w);
            readers_[{w.stream, w.count}].push_back(step.stream);
          }
    }
  }

  /// The steps that the streams stand before, or whose signals have no room; none: all ran.
  std::vector<std::string> stuck() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < at_.size(); ++s)
        while (advance(s)) moved = true;
    }
    std::vector<std::string> out;
    for (std::size_t s = 0; s < at_.size(); ++s)
      if (at_[s].step < bound_.streams[s].size()) out.push_back(bound_.plan.nodes[static_cast<std::size_t>(bound_.streams[s][at_[s].step].node)].name + (at_[s].ran ? " (signals)" : ""));
    return out;
  }

 private:
  struct At {
    std::size_t step = 0, taken = 0, put = 0;  // waits taken and signals put of this step
    bool ran = false;
  };

  bool advance(std::size_t s) {
    At& at = at_[s];
    if (at.step == bound_.streams[s].size()) return false;
    const Step& step = bound_.streams[s][at.step];
    if (!at.ran) {
      auto waits = waits_.find({step.stream, step.sequence});
      if (waits == waits_.end() || at.taken == waits->second.size()) return at.ran = true;
      const StepWait& w = waits->second[at.taken];
      int& channel = channels_[{w.stream, step.stream, node_of(w.stream, w.count)}];
      if (channel != w.count) return false;
      channel = 0;
      ++at.taken;
      return true;
    }
    auto readers = readers_.find({step.stream, step.sequence});
    if (readers == readers_.end() || at.put == readers->second.size()) return at = {at.step + 1}, true;
    int& channel = channels_[{step.stream, readers->second[at.put], node_of(step.stream, step.sequence)}];
    if (channel) return false;
    channel = step.sequence;
    ++at.put;
    return true;
  }

  int node_of(int stream, int sequence) const { return one_each_ ? -1 : bound_.streams[static_cast<std::size_t>(stream)][static_cast<std::size_t>(sequence) - 1].node; }

  const BoundPlan& bound_;
  const bool one_each_;
  std::map<std::pair<int, int>, std::vector<StepWait>> waits_;  // (stream, step) → what it must hear of
  std::map<std::pair<int, int>, std::vector<int>> readers_;   // (stream, step) → streams that wait for it
  std::map<std::array<int, 3>, int> channels_;                // from, to, node → the step whose signal is in it; 0: none
  std::vector<At> at_;
};

}  // namespace belfry::test
