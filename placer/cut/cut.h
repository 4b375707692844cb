// cut: splits a net over devices by cost, exactly where the search can be finished, with a lower bound in any case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <belfry/graph/plan/cut_problem.h>

namespace belfry {

struct CutOptions {
  /// Parts that the search may look at before it gives up proving: about four million a second. A count, so that answers repeat.
  std::int64_t steps = 12'000'000;
};

/// The best split that was found, and a bound. UserError where nothing fits memory and kinds.
Cut cut(const CutProblem& problem, const CutOptions& options = {});

/// Seconds of every device.
std::vector<double> loads_of(const CutProblem& problem, const std::vector<int>& device);
/// Of one batch; parts run as soon as what they read is there.
double latency_of(const CutProblem& problem, const std::vector<int>& device);
/// The objective's value.
double value_of(const CutProblem& problem, const std::vector<int>& device);
/// What is wrong with a split, in words; empty if it is legal.
std::vector<std::string> objections_to(const CutProblem& problem, const std::vector<int>& device);

}  // namespace belfry
