// What is told of a run that has ended.
#include <algorithm>
#include <new>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/executor/run.h>

namespace belfry {

StateAfter Runner::judged_state() const {
  auto all = [&](Progress p) { return std::all_of(updates_.begin(), updates_.end(), [&](Progress u) { return u == p; }); };
  // Faults are found behind the updates that they have spoilt.
  return all(kDone) && !faulty_ ? StateAfter::complete : all(kNotBegun) ? StateAfter::untouched : StateAfter::torn;
}

namespace {

/// And the way out.
std::pair<std::string, std::string> what_is_lost(const Program& program) {
  std::vector<std::string> why;  // of a GPU that waited for another both are told
  auto look = [&](const auto& at) {
    try {
      at->check();
    } catch (const DeviceError& e) {
      if (std::find(why.begin(), why.end(), e.what()) == why.end()) why.emplace_back(e.what());
    }
  };
  for (std::size_t s = 0; s < program.launches().size(); ++s)
    if (Queue* queue = program.queue(static_cast<int>(s))) look(queue);
  if (!why.empty()) return {fmt::format("its GPU: {}", fmt::join(why, "; ")), "start a new process, from a checkpoint"};
  for (const auto& c : program.communicators()) look(c);
  if (why.empty()) return {};
  return {fmt::format("its collectives: {}", fmt::join(why, "; ")), "make a new session, from a checkpoint"};
}

}  // namespace

void Runner::describe(Outcome& out) const {
  const PlacedGraph& plan = program_.plan();
  if (failed_step_) {
    out.failed_node = plan.nodes[static_cast<std::size_t>(failed_step_->node)].name;
    out.failed_device = to_string(plan.cluster.devices[static_cast<std::size_t>(failed_step_->device)].id);
  }
  std::tie(out.lost, out.way_out) = what_is_lost(program_);
  std::set<std::string> begun;
  for (std::size_t u = 0; u < updates_.size() && out.state == StateAfter::torn; ++u)
    if (updates_[u] != kNotBegun)
      for (ValueIndex v : program_.updates()[u].variables) begun.insert(plan.value(v).name);
  out.torn.assign(begun.begin(), begun.end());
}

Outcome Runner::finish() {
  Outcome out;
  const Step* reading = nullptr;
  try {  // a step that is done is told as done, whatever becomes of its results
    trace_.clear();
    for (auto& t : trace_of_thread_) trace_.insert(trace_.end(), t.begin(), t.end());
    std::sort(trace_.begin(), trace_.end(), [](const TraceEntry& a, const TraceEntry& b) { return a.begin_ns < b.begin_ns; });
    if (!error_)
      for (const ResultBinding& r : program_.results()) reading = r.fetch, out.fetched.insert_or_assign(r.name, program_.read(r.buffer()));
  } catch (...) {
    fail(reading);
    out.fetched.clear();
  }
  out.error = error_, out.ahead = error_ahead_;
  if (!error_) return out;
  out.state = judged_state();
  try {
    describe(out);
  } catch (const std::bad_alloc&) {  // the error and the state are told, if not where it was
  }
  return out;
}

}  // namespace belfry
