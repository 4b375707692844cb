// What ran is what the plan says: steps, streams, order, bytes.
#pragma once

#include <gtest/gtest.h>

#include <belfry/executor/run.h>
#include <belfry/graph/plan/memory.h>

namespace belfry::test {

/// The traced steps are those of the plan, stream by stream and in order, and every arena has the planned size.
inline testing::AssertionResult ran_as_planned(const Program& program, const std::vector<TraceEntry>& trace) {
  const PlacedGraph& plan = program.plan();
  std::vector<int> at(program.bound().streams.size());
  for (const TraceEntry& e : trace) {
    auto s = static_cast<std::size_t>(e.stream);
    if (e.index != at[s]++) return testing::AssertionFailure() << "stream " << e.stream << " ran step " << e.index << " as its number " << at[s] - 1;
    for (const StepWait& w : program.bound().streams[s][static_cast<std::size_t>(e.index)].waits)
      for (const TraceEntry& other : trace)
        if (other.stream == w.stream && other.index == w.count - 1 && other.end_ns > e.begin_ns)
          return testing::AssertionFailure() << "step " << e.index << " of stream " << e.stream << " began before what it waits for had ended";
  }
  for (std::size_t s = 0; s < at.size(); ++s)
    if (at[s] != static_cast<int>(program.bound().streams[s].size())) return testing::AssertionFailure() << "stream " << s << " ran " << at[s] << " of " << program.bound().streams[s].size() << " steps";
  std::map<std::string, std::int64_t> planned;
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) planned[plan.cluster.devices[d].space] += bytes_of(plan, static_cast<int>(d)).total();
  for (std::size_t s = 0; s < program.bound().spaces.size(); ++s)
    if (planned[program.bound().spaces[s]] != program.allocated(static_cast<int>(s)))
      return testing::AssertionFailure() << program.bound().spaces[s] << " has " << program.allocated(static_cast<int>(s)) << " bytes, planned are " << planned[program.bound().spaces[s]];
  return testing::AssertionSuccess();
}

}  // namespace belfry::test

/// Ends every system test of a session whose last step was traced.
#define EXPECT_RAN_AS_PLANNED(session) EXPECT_TRUE(belfry::test::ran_as_planned((session).last_program(), (session).trace()))
