// Which of a library's engines is fastest for a kernel: timed where it runs, kept in the table of costs, named in the plan.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/executor/program.h>

namespace belfry {

/// What a choice of engine depends on: the kernel, its op with attributes or members, local types, and outputs that are read.
std::string engine_key(const std::string& kernel, const KernelRequest& request);

/// Seconds of one launch.
using TimeLaunch = std::function<double(Prepared&)>;
/// Of a kernel's engines the one with the smallest median over rounds that take all in turn, after one that does not count; their order
/// decides between equals. One that cannot be prepared with so much scratch is left out. Empty where there are not two to choose among.
std::string fastest_engine(const KernelTable& table, const std::string& kernel, const KernelRequest& request, const std::vector<std::string>& engines, std::int64_t scratch_bytes, const TimeLaunch& seconds, int rounds = 9);

/// By engine_key, for all kernels of a program on devices with queues that have engines. It has made a step, is idle, and what lies in its arenas
/// but the state is lost.
std::map<std::string, std::string> time_engines(const Program& program);

}  // namespace belfry
