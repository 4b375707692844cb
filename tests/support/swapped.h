// A text with one part in another's place.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace belfry::test {

inline std::string swapped(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

}  // namespace belfry::test
