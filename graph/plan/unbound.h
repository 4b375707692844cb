// How a plan is refused that cannot be carried out as it stands.
#pragma once

#include <string>

#include <belfry/graph/error.h>

namespace belfry {

[[noreturn]] inline void unbound(const std::string& what) { throw UserError("unbound: " + what); }

}  // namespace belfry
