// What is wrong with the command line itself, and not with what it names.
#pragma once

#include <map>
#include <string>

#include <belfry/graph/error.h>

namespace belfry {

/// Options that contradict each other, or have values that they do not take: exit 2.
struct WrongUse : UserError {
  using UserError::UserError;
};

/// What makes something of options' values: what it objects to is wrong use.
template <class Make>
auto made_of_options(const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const UserError& e) {
    throw WrongUse(e.what());
  }
}

/// Of "adam:beta1=0.8,amsgrad=true" what stands behind the colon, by name. WrongUse for what is not so written, with `form` as words, and for a name that stands there twice.
std::map<std::string, std::string> named_values(const std::string& text, const char* form);

}  // namespace belfry
