// What the command line alone shows to be wrong.
#pragma once

#include <belfry/graph/error.h>

namespace belfry {

/// Options that contradict each other: exit 2.
struct WrongUse : UserError {
  using UserError::UserError;
};

/// What `read` makes of what options say; what it objects to is wrong use.
template <class Read>
auto as_given(const Read& read) {
  try {
    return read();
  } catch (const UserError& e) {
    throw WrongUse(e.what());
  }
}

}  // namespace belfry
