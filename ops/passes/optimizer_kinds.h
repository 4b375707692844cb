// What the short form's optimisers become: their options, slots and ops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/attributes.h>
#include <belfry/graph/shape.h>

namespace belfry {

/// A slot of each variable; `start` names the option with its first value (empty: zeros).
struct SlotRule {
  std::string name, start = {};
  std::optional<Shape> shape = {};  ///< where it is not the variable's
};

struct UpdateRule {
  std::string op;  ///< none where the update is made of several
  std::vector<SlotRule> slots = {};  ///< in the order of the op's inputs
};

/// How the rate is corrected for slots that begin at zero: not, by 1 − beta1ᵗ alone, or by both betas.
enum class RateCorrection { none, first, both };

struct OptimizerKind {
  std::string prefix;                 ///< of the names of slots and updates
  std::vector<AttributeDef> options;  ///< all, in the order of files; those that the op has too are its attributes
  UpdateRule (*update)(const Attributes& options, const Shape& variable);
  RateCorrection correction = RateCorrection::none;
};

std::vector<std::string> optimizer_names();
/// UserError with the known kinds.
const OptimizerKind& optimizer_kind(const std::string& kind);
/// Whether slots of some kind are called "prefix_…/variable".
bool is_slot_prefix(const std::string& prefix);

}  // namespace belfry
