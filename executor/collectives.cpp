#include <belfry/executor/collectives.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

using What = Collective::What;

/// A group of one rank. Never recorded: several ranks of one process that record can wait for each other for ever.
class Communicated : public Prepared {
 public:
  Communicated(std::shared_ptr<Communicator> communicator, int rank, std::vector<Collective> group, std::unique_ptr<Prepared> sum, Arguments sum_arguments)
      : communicator_(std::move(communicator)), rank_(rank), group_(std::move(group)), sum_(std::move(sum)), sum_arguments_(std::move(sum_arguments)) {}
  void launch(const Arguments& a) override {
    if (sum_) {
      sum_arguments_.stream = a.stream;
      sum_arguments_.queue = a.queue;
      sum_->launch(sum_arguments_);
    }
    communicator_->run(rank_, group_, *a.queue);
  }
  bool capturable() const override { return false; }

 private:
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  std::vector<Collective> group_;
  std::unique_ptr<Prepared> sum_;  // of what the rank has itself
  Arguments sum_arguments_;
};

/// Parts from the first to the last: the library's own order is no tree either.
std::unique_ptr<Prepared> sum_in_order(const std::vector<LocalType>& parts, const LocalType& type, const KernelTable& kernels) {
  JoinRequest request{"sum", 0, static_cast<int>(parts.size()), static_cast<int>(parts.size()), {}, {}};
  KernelRequest r;
  const Attributes attributes = {{"how", std::string("sum")}};
  r.op = kAggregate;
  r.attributes = &attributes;
  for (int i = 0; i < request.towers; ++i) {
    request.parts.push_back({i, i + 1, parts[static_cast<std::size_t>(i)]});
    request.tree.push_back(i);
    if (i) request.tree.push_back(-1);
  }
  r.inputs = parts;
  r.outputs = {type};
  r.wanted = {true};
  r.join = &request;
  return kernels.prepare(kAggregate, r);
}

}  // namespace

Collectors::Collectors(const BoundPlan& bound, const Open& open) : bound_(bound) {
  std::map<std::vector<int>, std::set<int>> nodes;  // by their devices
  std::map<int, std::set<int>> threads;             // device → threads
  const PlacedGraph& plan = bound.plan;
  for (const auto& stream : bound.streams)
    for (const Step& step : stream) {
      if (!is_collective(step.variant)) continue;
      steps_[step.node][step.device] = &step;
      nodes[plan.nodes[static_cast<std::size_t>(step.node)].holders.get()].insert(step.node);
      threads[step.device].insert(plan.streams[static_cast<std::size_t>(step.stream)].thread);
    }
  std::set<int> taken;
  for (const auto& [device, mine] : threads)
    for (int t : mine)
      if (mine.size() > 1 || !taken.insert(t).second)
        throw UserError(fmt::format("unbound: {} does not launch its collectives on a host thread of its own", to_string(plan.cluster.devices[static_cast<std::size_t>(device)].id)));
  for (const auto& [devices, mine] : nodes) {
    all_.push_back(open(devices));
    for (int n : mine) of_node_[n] = all_.back();
  }
}

std::unique_ptr<Prepared> Collectors::kernel(const Step& step, const std::function<std::byte*(const BufferRef&)>& address, const KernelTable& kernels) const {
  const PlanNode& n = bound_.plan.nodes[static_cast<std::size_t>(step.node)];
  const std::vector<int>& ranks = n.holders.get();
  const int rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), step.device) - ranks.begin());
  const BufferRef& result = step.writes[0][0].buffer;
  const int here = result.space;
  std::byte* out = address(result);
  std::vector<Collective> group;
  std::unique_ptr<Prepared> sum;
  Arguments summed;
  if (n.op == kAllGather) {
    std::int64_t at = 0;
    for (std::size_t h = 0; h < ranks.size(); ++h) {
      const BufferRef& part = step.reads[0][h].buffer;
      const bool mine = static_cast<int>(h) == rank;
      if (part.bytes) group.push_back({What::broadcast, part.type.dtype, part.type.elements(), static_cast<int>(h), mine ? address(part) : nullptr, out + at});
      at += part.bytes;
    }
  } else if (n.ranged) {
    for (std::size_t h = 0; h < ranks.size(); ++h)
      for (const Part& p : steps_.at(step.node).at(ranks[h])->reads[0])
        if (p.buffer.space == here && p.buffer.bytes) group.push_back({What::reduce, p.buffer.type.dtype, p.buffer.type.elements(), static_cast<int>(h), address(p.buffer), static_cast<int>(h) == rank ? out : nullptr});
  } else {
    std::vector<LocalType> parts;
    for (const Part& p : step.reads[0])
      if (p.buffer.space == here) parts.push_back(p.buffer.type), summed.inputs.push_back(address(p.buffer));
    const std::byte* from = summed.inputs.at(0);
    if (parts.size() > 1) {
      sum = sum_in_order(parts, result.type, kernels);
      summed.outputs = {out};
      from = out;
    }
    group.push_back({What::all_reduce, result.type.dtype, result.type.elements(), 0, from, out});
  }
  return std::make_unique<Communicated>(of_node_.at(step.node), rank, std::move(group), std::move(sum), std::move(summed));
}

}  // namespace belfry
