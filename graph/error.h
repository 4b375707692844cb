// The three kinds of failure; every message names the op or file, the offending values and the way out.
#pragma once

#include <stdexcept>
#include <string>

namespace belfry {

/// Bad input: a graph, a file, an option, a feed. The user can mend it.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A broken invariant of Belfry itself.
struct InternalError : std::runtime_error {
  explicit InternalError(const std::string& what) : std::runtime_error(what + " (a bug in Belfry: please report it)") {}
};

/// A device or its driver refused: status, call and device stand in the text.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A line of the user's program or file, kept with each node so that errors can point at it.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
  static constexpr SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  /// "net.cpp:41", or "" where none is known.
  std::string text() const;
  /// " (net.cpp:41)", or "".
  std::string aside() const;
};

}  // namespace belfry
