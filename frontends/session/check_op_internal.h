// The parts of check_op, which the tests of Belfry's own ops ask one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/frontends/session/check_op.h>
#include <belfry/graph/contexts.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// An op, and the set on which graphs with it are built.
struct OpUnderCheck {
  std::shared_ptr<const OpSet> ops;
  const OpDef& def;
};
using Objections = std::vector<std::string>;

constexpr std::int64_t kCaseRows = 3;  ///< of a batch, where a check needs but one size

/// Types as stated; every refusal is refused with its words.
Objections objections_to_types(const OpUnderCheck& op, const OpCase& c);
/// The reference writes what inference gives: all of it, nothing beyond, and the same bits twice.
Objections objections_to_writing(const OpUnderCheck& op, const OpCase& c);
Objections objections_to_precision(const OpUnderCheck& op, const OpCase& c);
/// An output that the gradient does not follow must be refused by name where a loss reads it. `compared` counts the inputs whose gradients were.
Objections objections_to_gradient(const OpUnderCheck& op, const OpCase& c, int& compared);
/// An op without a gradient must say why, and one with a gradient have a case that checks it; "" where that is so.
std::string objection_to_cover(const OpDef& def, const std::vector<OpCase>& cases, int compared);
/// Output on the bytes of an input, for every pair that the op allows.
Objections objections_to_in_place(const OpUnderCheck& op, const OpCase& c);
/// commutative, zero_preserving, by_element and sum_of_inputs hold where they are said to.
Objections objections_to_promises(const OpUnderCheck& op, const OpCase& c);
/// The split rule alone, in every legal combination of input states; B is 1, T − 1, T and T + 1; dyadic and random values.
Objections objections_to_split(const OpUnderCheck& op, const OpCase& c);

using KernelRuns = std::map<std::string, int>;  ///< by kernel: how often its results were compared
/// Every kernel of the table that accepts the case, at 1 and 2 threads, also without the optional outputs and on the bytes of inputs.
Objections objections_to_kernels(const KernelTable& kernels, const OpUnderCheck& op, const OpCase& c, KernelRuns& runs);
/// The same on these inputs against what is wanted; an empty tensor is any.
Objections objections_to_launches(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted, std::int64_t batch, KernelRuns& runs);

std::string objection(std::string_view kind, const OpDef& def, const OpCase& c, std::string_view what);
/// "input 'x'", "output 'y'"; of an input that repeats with its number.
std::string input_of(const OpDef& def, std::size_t i);
std::string output_of(const OpDef& def, std::size_t k);

OpCase in_f64(const OpDef& def, const OpCase& c);
/// The case as it is and in f64 where that differs, with the types that inference gives where the case states none.
std::vector<OpCase> versions(const OpUnderCheck& op, const OpCase& c);
Value add_case(Graph& graph, const OpDef& def, const OpCase& c);

HostTensor draw(const CaseInput& input, std::int64_t batch, bool dyadic, std::mt19937_64& rng);
std::vector<HostTensor> draw_all(const OpCase& c, std::int64_t batch, bool dyadic, std::uint64_t seed);
/// Null for inputs left out.
std::vector<const HostTensor*> pointers(const OpCase& c, const std::vector<HostTensor>& tensors);
inline Share whole_share(std::int64_t batch) { return {0, batch, batch, 1, Combine::global_mean}; }
std::vector<LocalType> local_types(const std::vector<TensorType>& types, std::int64_t batch);
std::vector<HostTensor> run_op(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, std::int64_t batch);

/// The place of the largest |got − wanted| / (1 + |wanted|); infinite where types differ or one is no number.
struct Farthest {
  double distance = 0, got = 0, wanted = 0;
  std::int64_t element = 0;
};
Farthest farthest(const HostTensor& got, const HostTensor& wanted);
/// "element 3 is 0.5, not 0.25" of the first that differs in a bit, or how the types differ; "" where nothing does.
std::string difference_of(const HostTensor& got, const HostTensor& wanted);

/// Memory of an output between guards, which show that more was written than it holds.
class Guarded {
 public:
  Guarded(LocalType type, std::size_t room, std::byte fill);
  std::byte* data() { return bytes_.data() + room_; }
  const std::byte* data() const { return bytes_.data() + room_; }
  View view() { return {type_, data()}; }
  bool overrun() const;
  HostTensor tensor() const;

 private:
  LocalType type_;
  std::size_t room_;
  std::vector<std::byte, AlignedAllocator<std::byte>> bytes_;
};
/// One run of the reference between guards. A wrong rule may have it read or write more than it has.
std::vector<Guarded> run_guarded(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<LocalType>& outputs, const Share& share, std::byte fill = {});

/// States that a value of a type can be offered in.
std::vector<SplitState> legal_states(const TensorType& type);
/// Calls f for every combination of legal states of the inputs; for shares of 2 and 3 towers, over the batches that matter.
void for_each_states(const OpCase& c, const std::function<void(const std::vector<SplitState>&)>& f);
void for_each_shares(const std::function<void(int towers, std::int64_t batch)>& f);
/// `count` tensors whose sum or maximum is `whole`, exactly on dyadic values.
std::vector<HostTensor> parts_of(const HostTensor& whole, std::int64_t count, Reduction reduction, bool dyadic, std::mt19937_64& rng);

}  // namespace belfry
