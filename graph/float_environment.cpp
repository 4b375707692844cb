#include <belfry/graph/float_environment.h>

#include <xmmintrin.h>

#include <cfenv>

namespace belfry {

namespace {

/// Of MXCSR: flush to zero, rounding, denormals are zero.
constexpr unsigned kSetByPrograms = 0x8000 | 0x6000 | 0x0040;

}  // namespace

DefaultFloats::DefaultFloats() : rounding_(std::fegetround()), control_(_mm_getcsr() & kSetByPrograms) {
  if (rounding_ != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  if (control_) _mm_setcsr(_mm_getcsr() & ~kSetByPrograms);
}

DefaultFloats::~DefaultFloats() {
  if (rounding_ != FE_TONEAREST) std::fesetround(rounding_);
  if (control_ || rounding_ != FE_TONEAREST) _mm_setcsr((_mm_getcsr() & ~kSetByPrograms) | control_);
}

}  // namespace belfry
