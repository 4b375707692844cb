// The command line as a function: what the program `belfry` is made of, and what a user's own program calls.
#pragma once

namespace belfry {

/// Runs one verb. Data goes to standard output, words to standard error. 0: done, 1: failed, 2: wrong use.
int cli_main(int argc, char** argv);

}  // namespace belfry
