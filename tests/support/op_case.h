// The cases of Belfry's own ops: each feeds every check that an op must pass, and what is found is a failure of GoogleTest.
#pragma once

#include <string>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/frontends/session/check_op_internal.h>
#include <belfry/graph/op_def.h>

namespace belfry::test {

inline CaseInput real(Shape shape) { return {{f32, std::move(shape)}}; }
inline CaseInput positive(Shape shape) { return {{f32, std::move(shape)}, 0.25, 2}; }
inline CaseInput divisor(Shape shape) { return {{f32, std::move(shape)}, 0.5, 2, 0, true}; }
inline CaseInput below(Dim n, Shape shape, DType dtype = i32) { return {{dtype, std::move(shape)}, 0, 0, std::move(n)}; }
inline CaseInput whole_numbers(Shape shape, DType dtype = i32) { return {{dtype, std::move(shape)}, -5, 5}; }
inline CaseInput bits(Shape shape) { return {{boolean, std::move(shape)}}; }

/// The cases of one op.
struct OpTable {
  std::string op;
  std::vector<OpCase> cases;
};

void check_inference(const OpDef& def, const std::vector<OpCase>& cases);
void check_writing(const OpDef& def, const std::vector<OpCase>& cases);
void check_precision(const OpDef& def, const std::vector<OpCase>& cases);
void check_gradient(const OpDef& def, const std::vector<OpCase>& cases);
void check_in_place(const OpDef& def, const std::vector<OpCase>& cases);
void check_promises(const OpDef& def, const std::vector<OpCase>& cases);
void check_split(const OpDef& def, const std::vector<OpCase>& cases);
/// The split through expand and the interpreters, with gradients.
void check_expanded(const OpDef& def, const std::vector<OpCase>& cases);
/// Gives the number of kernel runs compared.
int check_kernels(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases);
/// The same on halves, for an op that computes with them: a case's types, the reference, and every kernel, in bf16 and f16.
int check_halves(const KernelTable& kernels, const OpDef& def, const std::vector<OpCase>& cases);
/// The reference and every kernel that accepts the case, on these inputs of f32 and in f64, give `wanted`: for values that are not drawn, such as infinities. An empty tensor
/// in `wanted` is any.
int check_given(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted);

OpCase in_halves(const OpDef& def, const OpCase& c, DType half);
/// max |a − b| / (1 + |b|); infinite where types differ.
double distance(const HostTensor& a, const HostTensor& b);

}  // namespace belfry::test
