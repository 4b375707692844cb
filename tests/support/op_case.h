// One case of an op feeds every check that an op must pass: inference, precision, gradient, aliasing, split states, kernels.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/graph/op_def.h>

namespace belfry::test {

/// An input and the values that are drawn for it. f32 stands for the float type under test.
struct CaseInput {
  TensorType type;
  double low = -2, high = 2;
  Dim below = 0;              ///< not 0: integers from 0 up to, without, this
  bool power_of_two = false;  ///< in dyadic draws: ±2^k, so that divisions are exact
  bool given = true;          ///< false: an optional input that is left out
};
inline CaseInput real(Shape shape) { return {{f32, std::move(shape)}}; }
inline CaseInput positive(Shape shape) { return {{f32, std::move(shape)}, 0.25, 2}; }
inline CaseInput divisor(Shape shape) { return {{f32, std::move(shape)}, 0.5, 2, 0, true}; }
inline CaseInput below(Dim n, Shape shape, DType dtype = i32) { return {{dtype, std::move(shape)}, 0, 0, std::move(n)}; }
inline CaseInput whole_numbers(Shape shape, DType dtype = i32) { return {{dtype, std::move(shape)}, -5, 5}; }
inline CaseInput bits(Shape shape) { return {{boolean, std::move(shape)}}; }

/// Inputs or attributes that inference must refuse, with words that the message must hold.
struct Refusal {
  std::vector<TensorType> inputs;
  std::vector<std::string> words;
  Attributes attributes = {};  ///< these replace those of the case
};

struct OpCase {
  std::string name;
  Attributes attributes = {};
  std::vector<CaseInput> inputs = {};
  std::vector<TensorType> outputs = {};         ///< as inference must state them
  std::vector<Refusal> refused = {};
  double tolerance = 1e-5;                      ///< of f32 against f64, |a − b| / (1 + |b|)
  double gradient_tolerance = 1e-6;             ///< of central differences, the same measure
  bool exact_sums = true;                       ///< dyadic inputs make exact results: towers equal the whole exactly
  bool by_share = false;                        ///< outputs mean the op on each share, not on the batch
  bool keep_dtypes = false;                     ///< f32 is meant: no version of the case in f64
  std::string no_reference = {};                ///< why the op cannot be run at all
  std::string no_gradient_check = {};           ///< why the gradient is not compared with differences
};

/// The cases of one op.
struct OpTable {
  std::string op;
  std::vector<OpCase> cases;
};

/// Everything below, for an op of anyone. Failures are reported to GoogleTest, by the case's name.
void check_op(const OpDef& def, const std::vector<OpCase>& cases);

/// Types as stated; every refusal is refused with its words.
void check_inference(const OpDef& def, const std::vector<OpCase>& cases);
/// The reference in f32 against that in f64.
void check_precision(const OpDef& def, const std::vector<OpCase>& cases);
/// Central differences in f64 of a random weighting of all outputs that the gradient follows, for every element of every float input. An
/// output that it does not follow must be refused by name where a loss reads it; an op without a gradient must say why.
void check_gradient(const OpDef& def, const std::vector<OpCase>& cases);
/// Output on the bytes of an input, for every pair that the op allows.
void check_in_place(const OpDef& def, const std::vector<OpCase>& cases);
/// The split rule alone, in every legal combination of input states: outputs of the towers, joined as the rule claims, are
/// those of the whole. T is 2 and 3, B is 1, T − 1, T and T + 1; dyadic and random values.
void check_split(const OpDef& def, const std::vector<OpCase>& cases);
/// The same through expand and the interpreters, with gradients.
void check_expanded(const OpDef& def, const std::vector<OpCase>& cases);
/// Every kernel of the table that accepts a case, at 1 and 2 threads, also without the optional outputs and on the bytes of inputs, against the
/// reference; bit for bit where the op is exact.
/// Gives the number of kernel runs compared.
int check_kernels(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases);
/// The same on halves, for an op that computes with them: a case's types, the reference, and every kernel, in bf16 and f16.
int check_halves(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases);
/// The reference and every kernel that accepts the case, on these inputs of f32 and in f64, give `wanted`: for values that are not drawn, such as infinities. An empty tensor
/// in `wanted` is any.
int check_given(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted);

/// What the parts of the harness share.
OpCase in_f64(const OpDef& def, const OpCase& c);
OpCase in_halves(const OpDef& def, const OpCase& c, DType half);
HostTensor draw(const CaseInput& input, std::int64_t batch, bool dyadic, std::mt19937_64& rng);
std::vector<HostTensor> draw_all(const OpCase& c, std::int64_t batch, bool dyadic, std::uint64_t seed);
/// Null for inputs left out.
std::vector<const HostTensor*> pointers(const OpCase& c, const std::vector<HostTensor>& tensors);
std::vector<HostTensor> run_op(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, std::int64_t batch);
/// max |a − b| / (1 + |b|); infinite where types differ.
double distance(const HostTensor& a, const HostTensor& b);

/// States that a value of a type can be offered in.
std::vector<SplitState> legal_states(const TensorType& type);
/// Calls f for every combination of legal states of the inputs; for shares of 2 and 3 towers, over the batches that matter.
void for_each_states(const OpCase& c, const std::function<void(const std::vector<SplitState>&)>& f);
void for_each_shares(const std::function<void(int towers, std::int64_t batch)>& f);
/// `count` tensors whose sum or maximum is `whole`, exactly on dyadic values.
std::vector<HostTensor> parts_of(const HostTensor& whole, std::int64_t count, Reduction reduction, bool dyadic, std::mt19937_64& rng);

}  // namespace belfry::test
