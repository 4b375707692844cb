// What `fit` refuses: options below their least, names that a log has for itself, losses that are no numbers.
#pragma once

#include <string>
#include <vector>

#include <belfry/frontends/session/results.h>
#include <belfry/frontends/train/fit.h>

namespace belfry {

bool logs(const FitOptions& options);
/// The same options. UserError for one below its least.
const FitOptions& checked(const FitOptions& options);
/// UserError for a loss or metric with the name of what a log's lines, or TensorBoard's charts, say of themselves.
void check_names(const Graph& graph, const std::vector<std::string>& reported, const FitOptions& options);
/// UserError for a loss of the last batch that is no number.
void check_finite(const Results& results, const std::vector<std::string>& losses, const Progress& p);

}  // namespace belfry
