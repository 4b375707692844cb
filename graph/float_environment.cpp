#include <belfry/graph/float_environment.h>

namespace belfry {

DefaultFloats::DefaultFloats() {
  std::fegetenv(&before_);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFloats::~DefaultFloats() { std::fesetenv(&before_); }

}  // namespace belfry
