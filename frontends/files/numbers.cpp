#include <belfry/frontends/files/numbers.h>

#include <clocale>
#include <cstdlib>

namespace belfry {

double real_at(const char* text, char** end) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(text, end, plain);
}

}  // namespace belfry
