// The part of Program that binds what comes from the caller and goes back.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/executor/program.h>
#include <belfry/graph/error.h>
#include <belfry/graph/plan/landing.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

void Program::bind_feeds_and_results() {
  std::map<std::string, std::size_t> feed_of;
  std::map<ValueIndex, const Step*> made;
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
        feed.staged.push_back({&l.arguments.inputs[i], l.step});
      }
      if (!n.donates.empty()) {
        l.update = static_cast<int>(updates_.size());
        updates_.push_back({static_cast<int>(s), static_cast<int>(k), {}});
        for (auto [u, variable] : n.donates) updates_.back().variables.push_back(variable);
      }
      if (n.op == kFetch) made.try_emplace(n.outputs[0], l.step);
    }
  for (const auto& [name, v] : plan_->fetches) results_.push_back({name, made.at(v)});
  auto behind = [&](int device) {  // all else of a device: where feeds leave the host, or land
    BufferRef out;
    out.space = static_cast<int>(std::find(bound_.spaces.begin(), bound_.spaces.end(), plan_->cluster.space(device)) - bound_.spaces.begin());
    out.at = bound_.device_start[static_cast<std::size_t>(device)] + bound_.device_bytes[static_cast<std::size_t>(device)];
    return address(out);
  };
  const std::vector<ClusterDevice>& devices = plan_->cluster.devices;
  auto holder = [&](const FeedBinding& f) {
    const DeviceList& hosts = plan_->maker(f.value).holders;
    if (hosts.empty() || hosts.front() < 0 || static_cast<std::size_t>(hosts.front()) >= devices.size() || devices[static_cast<std::size_t>(hosts.front())].id.kind == "gpu") throw UserError(fmt::format("unbound: the feed '{}' is held by no device of the host, from where it goes to GPUs", f.name));
    return hosts.front();
  };
  std::map<int, std::int64_t> of_host;  // by device that holds feeds
  for (FeedBinding& f : feeds_)
    if (!f.staged.empty()) f.pinned[0] = behind(holder(f)) + std::exchange(of_host[holder(f)], of_host[holder(f)] + aligned_bytes(f.type.bytes()));
  if (of_host.empty()) return;
  for (FeedBinding& f : feeds_)
    if (!f.staged.empty()) f.pinned[1] = f.pinned[0] + of_host[holder(f)];
  const std::vector<std::int64_t> planned = landing_bytes(*plan_);
  for (auto [device, bytes] : of_host)
    if (2 * bytes > planned[static_cast<std::size_t>(device)]) throw InternalError("the plan has too little room for feeds that leave the host");
  staging_ = std::make_unique<Staging>();
  std::vector<Landing> landed = landings(*plan_);
  for (std::size_t d = 0; d < landed.size(); ++d)
    if (landed[d].bytes) staging_->land_on(static_cast<int>(d), std::move(landed[d]), behind(static_cast<int>(d)), device_of(static_cast<int>(d))->queue(1, Urgency::moves));
}

}  // namespace belfry
