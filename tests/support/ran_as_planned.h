// What ran is what the plan says: nodes, streams, order, bytes per link, bytes of memory.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <belfry/executor/run.h>

namespace belfry::test {

/// The traced steps are the plan's nodes, stream by stream, in order, and none began before what it waits for had ended;
/// addresses in other memory spaces were read for as many bytes as the plan's links carry; every arena has the planned size.
testing::AssertionResult ran_as_planned(const PlacedGraph& plan, const Program& program, const std::vector<TraceEntry>& trace);

/// All variables after steps from `state_for` on `feeds_for`. The last one ran as planned, and holders of a variable agree.
std::map<std::string, HostTensor> trained(const std::shared_ptr<const PlacedGraph>& plan, int steps, const KernelTables& kernels);

}  // namespace belfry::test

/// Ends every system test of a session whose last step was traced.
#define EXPECT_RAN_AS_PLANNED(session) EXPECT_TRUE(belfry::test::ran_as_planned((session).last_program()->plan(), *(session).last_program(), (session).trace()))
