// Cutting problems as files in the format of msr-fiddle/dnn-partitioning (NeurIPS 2020), which have published best splits.
#pragma once

#include <string>
#include <vector>

#include <belfry/graph/plan/cut_problem.h>

namespace belfry {

/// Kinds are "accelerator" (maxFPGAs of maxSizePerFPGA bytes each) and "cpu" (maxCPUs, which pay for no transfers and have no
/// limit); seconds are in the file's unit. `file` is for messages. UserError for what is not of the format.
CutProblem read_cut_problem(const std::string& text, const std::string& file);
/// The same format; UserError for a problem of other kinds. Nodes without an id get their place in the list.
std::string write_cut_problem(const CutProblem& problem);
/// {"accelerators": [[id, …], …], "cpu": [id, …]}: what check_split.py beside that data reads.
std::string write_cut(const CutProblem& problem, const std::vector<int>& device);
/// Such an answer: the device of each node, of several CPUs the first. UserError where a node is missing or stands there twice, and for what the problem has not.
std::vector<int> read_cut(const std::string& text, const std::string& file, const CutProblem& problem);

}  // namespace belfry
