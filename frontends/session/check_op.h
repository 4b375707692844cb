// What every op must hold, checked for one of anybody's on cases that its author draws up: types, gradient, split rule, kernels.
#pragma once

#include <string>
#include <vector>

#include <belfry/frontends/session/library.h>
#include <belfry/graph/attributes.h>
#include <belfry/graph/shape.h>

namespace belfry {

/// An input and the values that are drawn for it. f32 stands for the float type under test: cases run in f64 too.
struct CaseInput {
  TensorType type;
  double low = -2, high = 2;
  Dim below = 0;              ///< not 0: integers from 0 up to, without, this
  bool power_of_two = false;  ///< in dyadic draws: ±2^k, so that divisions are exact
  bool given = true;          ///< false: an optional input that is left out
};

/// Inputs or attributes that inference must refuse, with words that the message must hold.
struct Refusal {
  std::vector<TensorType> inputs;
  std::vector<std::string> words;
  Attributes attributes = {};  ///< these replace those of the case
};

/// Shapes are best small and hold kBatch where the op has rows: every element of every float input is moved, for every split of small batches.
struct OpCase {
  std::string name;
  Attributes attributes = {};
  std::vector<CaseInput> inputs = {};
  std::vector<TensorType> outputs = {};         ///< as inference must state them; none: as it does
  std::vector<Refusal> refused = {};
  double tolerance = 1e-5;                      ///< of f32 against f64, and of kernels against the reference, |a − b| / (1 + |b|)
  double gradient_tolerance = 1e-6;             ///< of central differences, the same measure
  bool exact_sums = true;                       ///< dyadic inputs make exact results: towers equal the whole exactly
  bool by_share = false;                        ///< outputs mean the op on each share, not on the batch
  bool keep_dtypes = false;                     ///< f32 is meant: no version of the case in f64
  std::string no_reference = {};                ///< why the op cannot be run at all
  std::string no_gradient_check = {};           ///< why the gradient is not compared with differences
};

/// What is wrong with the library's op of that name, each opening with its kind, then op, case and values. Empty: nothing was found.
/// - "case": the case cannot be run: attributes, inputs or ranges do not fit the op.
/// - "types": infer refuses a case or gives other types than the case states; the reference writes beyond what infer gives, or not all of it.
/// - "bits": the reference or a kernel gives other bits the second time.
/// - "precision": the reference in f32 is far from that in f64.
/// - "gradient": in f64, against central differences, for every element of every float input, of all outputs that it follows.
/// - "in place": an output on the bytes of an input that the op names gives other bits.
/// - "promise": zeros give zeros (zero_preserving), either order of two inputs gives the same bits (commutative), an element shows at its place alone
///   (by_element), and a sum_of_inputs is one.
/// - "split": 2 and 3 towers, also with unlike shares and with none, in every state that inputs can be offered in: what the towers make, joined as
///   the rule claims, is what one makes: bit for bit where it claims rows, within rounding where it claims a sum.
/// - "kernel": a kernel of `library.kernels["cpu"]` differs from the reference (bit for bit where the op is exact), or no case reaches it. Halves are not drawn.
/// What rules, reference and kernels throw is an objection too. A case whose types are wrong goes no further. UserError for an unknown op, or no cases.
std::vector<std::string> check_op(const Library& library, const std::string& op, const std::vector<OpCase>& cases);

}  // namespace belfry
