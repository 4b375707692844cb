// SIGINT and SIGTERM as the wish that a training ends soon.
#pragma once

#include <string_view>

namespace belfry {

/// While it lives the first SIGINT or SIGTERM is noted, and a line says so; one that comes half a second later or more ends the program at once, as without it. One at a time.
/// A signal that the process ignores stays ignored. SIGPIPE is: Ctrl-C ends a `tee` that reads the words too, and what is trained is still to be written.
class EndsOnSignal {
 public:
  explicit EndsOnSignal(bool quiet);  ///< quiet: without the line
  ~EndsOnSignal();
  EndsOnSignal(const EndsOnSignal&) = delete;
  /// The first one that came; 0: none.
  int signal() const;
};
std::string_view name_of_signal(int signal);

}  // namespace belfry
