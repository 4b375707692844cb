// Random graphs over many ops, for tests of files and passes.
#pragma once

#include <cstdint>

#include <belfry/frontends/builder/builder.h>

namespace belfry::test {

/// A graph of at most about 60 nodes; the same seed gives the same graph. It is meant to be written, read and typed, not run.
Graph random_graph(std::uint64_t seed);

}  // namespace belfry::test
