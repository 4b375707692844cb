// The part of Program that binds what comes from the caller and goes back.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/program.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

void Program::bind_feeds_and_results() {
  std::map<std::string, std::size_t> feed_of;
  std::map<ValueIndex, BufferRef> made;
  for (std::size_t s = 0; s < launches_.size(); ++s)
    for (std::size_t k = 0; k < launches_[s].size(); ++k) {
      Launch& l = launches_[s][k];
      const PlanNode& n = plan_->nodes[static_cast<std::size_t>(l.step->node)];
      for (std::size_t i : l.feed_inputs) {
        const BufferRef& b = l.step->reads[i][0].buffer;
        const std::string& name = plan_->value(b.tag.value).name;
        auto [at, fresh] = feed_of.try_emplace(name, feeds_.size());
        if (fresh) feeds_.push_back({name, b.tag.value, b.type, {}});
        FeedBinding& feed = feeds_[at->second];
        if (!queue(static_cast<int>(s))) {
          feed.addresses.push_back(&l.arguments.inputs[i]);
          continue;
        }
        if (feed.staged.empty()) feed.reader = {static_cast<int>(s), static_cast<int>(k)};
        feed.staged.emplace_back(&l.arguments.inputs[i], l.step->device);
      }
      if (!n.donates.empty()) {
        l.update = static_cast<int>(updates_.size());
        updates_.push_back({static_cast<int>(s), static_cast<int>(k), {}});
        for (auto [u, variable] : n.donates) updates_.back().variables.push_back(variable);
      }
      if (n.op == kFetch) made.try_emplace(n.outputs[0], l.step->writes[0][0].buffer);
    }
  for (const auto& [name, v] : plan_->fetches) results_.push_back({name, made.at(v)});
  std::int64_t bytes = 0;
  for (FeedBinding& f : feeds_)
    if (!f.staged.empty()) f.at = std::exchange(bytes, bytes + aligned_bytes(f.type.bytes()));
  if (std::all_of(feeds_.begin(), feeds_.end(), [](const FeedBinding& f) { return f.staged.empty(); })) return;
  staging_ = std::make_unique<Staging>(*any_gpu(), bytes);
  std::vector<Landing> landed = landings(*plan_);
  for (std::size_t d = 0; d < landed.size(); ++d) {
    if (!landed[d].bytes) continue;
    BufferRef behind;  // all else
    behind.space = static_cast<int>(std::find(bound_.spaces.begin(), bound_.spaces.end(), plan_->cluster.space(static_cast<int>(d))) - bound_.spaces.begin());
    behind.at = bound_.device_start[d] + bound_.device_bytes[d];
    staging_->land_on(static_cast<int>(d), std::move(landed[d]), address(behind), device_of(static_cast<int>(d))->queue(1, Urgency::moves));
  }
}

}  // namespace belfry
