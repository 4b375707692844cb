// How a thread computes with floating-point numbers, where results must not depend on what the program around has set.
#pragma once

namespace belfry {

/// While it lives, this thread rounds to nearest and keeps subnormal numbers; then it is as it was before. Flags and masks of exceptions stay as they are.
class DefaultFloats {
 public:
  DefaultFloats();
  ~DefaultFloats();
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  int rounding_;
  unsigned control_;
};

}  // namespace belfry
