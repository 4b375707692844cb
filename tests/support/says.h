// What a UserError says, and whether it holds given words.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <belfry/graph/error.h>

namespace belfry::test {

/// What `f` complains of; "(no error)" if it does not.
inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "(no error)";
}

template <class Error = UserError>
testing::AssertionResult says(const std::function<void()>& f, const std::vector<std::string>& words) {
  try {
    f();
  } catch (const Error& e) {
    for (const std::string& w : words)
      if (std::string(e.what()).find(w) == std::string::npos) return testing::AssertionFailure() << "'" << w << "' is not in: " << e.what();
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "was accepted";
}

}  // namespace belfry::test
