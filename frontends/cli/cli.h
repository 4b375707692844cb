// The command line as a function: what the program `belfry` is made of, and what a user's own program calls.
#pragma once

#include <memory>

namespace belfry {

struct Library;

/// Runs one verb. Data goes to standard output, words to standard error. 0: done, 1: failed, 2: wrong use.
/// `library` (if not empty) has a user's own ops, kernels and strategies in it.
int cli_main(int argc, char** argv, const std::shared_ptr<const Library>& library = {});

}  // namespace belfry
