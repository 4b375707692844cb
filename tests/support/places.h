// Whether a plan comes to its end where every buffer is a channel that holds one value until its last reader has taken it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/structural.h>

namespace belfry::test {

/// All streams, in the order that `choose` makes of those that may go on. No step may find the bytes that it writes full: then it
/// would have to wait for room, and so might its readers for it.
class Places {
 public:
  explicit Places(const BoundPlan& bound) : bound_(bound) {
    for (const auto& steps : bound.streams)
      for (const Step& step : steps) {
        for (const auto& parts : step.reads)
          for (const Part& p : parts) ++readers_[p.buffer.tag];
        if (is_op(node(step), kFetch)) ++readers_[step.writes[0][0].buffer.tag];  // read when the step has ended
      }
    for (const StateBuffer& s : bound.state) put(s.buffer);
    for (const BufferRef& kept : bound.kept) ++readers_[kept.tag], put(kept);  // the next step reads it too
  }

  /// What a step found full, or which steps wait for each other; empty: it came to its end.
  std::string run(const std::function<int(const std::vector<int>& ready)>& choose) {
    std::vector<std::size_t> at(bound_.streams.size());
    for (;;) {
      std::vector<int> ready;
      std::string left;
      for (std::size_t s = 0; s < at.size(); ++s) {
        if (at[s] == bound_.streams[s].size()) continue;
        const Step& step = bound_.streams[s][at[s]];
        left += (left.empty() ? "" : ", ") + node(step).name;
        if (std::all_of(step.waits.begin(), step.waits.end(), [&](const StepWait& w) { return static_cast<int>(at[static_cast<std::size_t>(w.stream)]) >= w.count; })) ready.push_back(static_cast<int>(s));
      }
      if (ready.empty()) return left.empty() ? "" : "waiting for each other: " + left;
      const auto s = static_cast<std::size_t>(choose(ready));
      if (std::string full = take_and_put(bound_.streams[s][at[s]++]); !full.empty()) return full;
    }
  }

 private:
  struct Full {
    BufferRef buffer;
    int readers = 0;  // that have not taken it
  };

  const PlanNode& node(const Step& step) const { return bound_.plan.nodes[static_cast<std::size_t>(step.node)]; }
  static bool meet(const BufferRef& a, const BufferRef& b) { return a.space == b.space && a.at < b.at + b.bytes && b.at < a.at + a.bytes; }

  std::string take_and_put(const Step& step) {
    for (const auto& parts : step.reads)
      for (const Part& p : parts) {
        auto at = std::find_if(full_.begin(), full_.end(), [&](const Full& f) { return f.buffer.tag == p.buffer.tag && f.readers > 0; });
        if (p.buffer.space < 0 || p.buffer.bytes == 0) continue;
        if (at == full_.end()) return "'" + node(step).name + "' finds nothing in the place of '" + bound_.plan.value(p.buffer.tag.value).name + "'";
        --at->readers;
      }
    std::erase_if(full_, [](const Full& f) { return f.readers == 0; });
    std::vector<const BufferRef*> written;
    if (step.scratch.bytes) written.push_back(&step.scratch);
    for (const auto& parts : step.writes)
      for (const Part& p : parts) written.push_back(&p.buffer);
    for (const BufferRef* b : written)
      for (const Full& f : full_)
        if (meet(*b, f.buffer)) return "'" + node(step).name + "' finds its place full of '" + bound_.plan.value(f.buffer.tag.value).name + "'";
    for (const auto& parts : step.writes)
      for (const Part& p : parts) put(p.buffer);
    return "";
  }

  void put(const BufferRef& buffer) {
    auto readers = readers_.find(buffer.tag);
    if (readers != readers_.end() && buffer.space >= 0 && buffer.bytes > 0) full_.push_back({buffer, readers->second});
  }

  const BoundPlan& bound_;
  std::map<Tag, int> readers_;  // steps that read a value
  std::vector<Full> full_;
};

}  // namespace belfry::test
