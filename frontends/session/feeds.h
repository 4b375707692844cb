// How feeds fit a graph's inputs: their rows, whole numbers that numpy makes wider than an input takes, and what to do where they do not fit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <belfry/frontends/session/results.h>
#include <belfry/graph/graph.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// The rows of a batch of feeds: UserError where inputs disagree, are missing or are of other types. An input of i32 takes i64 too: see `narrowed`.
std::int64_t rows_of(const Graph& graph, const Batch& feeds);

/// UserError that names the input, what is fed, and `why` it is needed.
[[noreturn]] void refuse_missing(const Node& input, const Batch& feeds, const std::string& why);

/// The same feeds with i64 made i32 where the input is that, in `room`; none where nothing is to be done. UserError with the element for a value that i32 does not hold.
std::optional<Batch> narrowed(const Graph& graph, const Batch& feeds, std::map<std::string, HostTensor>& room);

/// UserError with the nearest for a feed, written out one by one, that no input has the name of.
void check_written_out(const Graph& graph, const Batch& feeds);

}  // namespace belfry
