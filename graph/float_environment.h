// How a thread computes with floating-point numbers, where results must not depend on what the program around has set.
#pragma once

#include <cfenv>

namespace belfry {

/// While it lives, this thread rounds to nearest, keeps subnormal numbers and traps no exception; then it is as it was before.
class DefaultFloats {
 public:
  DefaultFloats();
  ~DefaultFloats();
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace belfry
