// Whether something is refused with a UserError that holds given words.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <belfry/graph/error.h>

namespace belfry::test {

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
