// What an op means: a plain struct of names and functions, one per op room.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <belfry/graph/attributes.h>
#include <belfry/graph/op_rules.h>

namespace belfry {

struct InputDef {
  InputDef(const char* n) : name(n) {}
  std::string name;         ///< "dy": the slope of an output, which has no say in mixed precision beside other inputs
  bool optional = false;    ///< may be left out
  bool variadic = false;    ///< one or more; only the last input
  bool shape_only = false;  ///< its elements are not read: it demands nothing
  bool wide = false;        ///< of an op that takes halves: this one stays f32
};
inline InputDef optional_input(const char* name) { InputDef d(name); d.optional = true; return d; }
inline InputDef variadic_input(const char* name) { InputDef d(name); d.variadic = true; return d; }
inline InputDef shape_only(const char* name) { InputDef d(name); d.shape_only = true; return d; }
inline InputDef wide_input(InputDef d) { d.wide = true; return d; }

struct OutputDef {
  OutputDef(const char* n) : name(n) {}
  std::string name;
  bool optional = false;  ///< computed only where it is read
  bool wide = false;      ///< of halves it is f32
};
inline OutputDef optional_output(const char* name) { OutputDef d(name); d.optional = true; return d; }
inline OutputDef wide_output(OutputDef d) { d.wide = true; return d; }

/// What mixed precision makes of an op's f32. What reads f16 or bf16 computes as if they were f32, and rounds each result once.
enum class Precision : std::uint8_t {
  full,    ///< f32 always: sums, powers and exponentials, losses, statistics, updates
  follow,  ///< halves where an input is one
  low,     ///< halves wherever they are asked for: products, which sum in f32. Its attribute `wide` keeps the result f32
};
/// Of every low op.
inline AttributeDef wide_result() { return {"wide", false}; }

/// What the scalar expression of an op makes of halves before that is rounded to one: generated kernels round what they must.
enum class ScalarResult : std::uint8_t {
  any,
  arithmetic,  ///< a sum, difference or product, whose NaN has no sign on GPUs
  selected,    ///< an input, or that with another sign, or a constant that halves hold: there is nothing to round; of a NaN the sign may be another where a tree selects it
};

struct OpDef {
  std::string name;
  int version = 1;
  std::vector<AttributeDef> attributes = {};
  std::vector<InputDef> inputs = {};
  std::vector<OutputDef> outputs = {"y"};

  /// Types of all outputs. Errors by InferContext::fail.
  InferRule infer;
  /// Slow, obvious host code; runs in f64 too. Oracle of every kernel, constant folder, last fallback.
  ReferenceRule reference;
  GradientRule gradient;
  SplitRule split;

  /// Floating point operations on one share; by default one per output element.
  std::function<double(std::span<const LocalType> inputs, std::span<const LocalType> outputs, const Attributes&)> flops = {};
  /// What the op becomes after gradients were taken, in terms of others; no values: it stays. Empty: it stays.
  std::function<std::vector<Value>(GradientContext&)> write_out = {};
  /// What the op becomes outside training: one Value per output. Empty: it stays.
  std::function<std::vector<Value>(GradientContext&)> inference = {};
  /// The scalar expression of an elementwise op, in C++ and CUDA alike, over its inputs, real attributes and T, what it computes in: for generated kernels.
  std::string scalar = {};
  ScalarResult scalar_result = ScalarResult::any;

  /// (output, input) pairs that may share bytes where the input is not read again.
  std::vector<std::pair<int, int>> in_place = {};
  bool source = false;       ///< reads no input that is computed: it can be computed wherever it is read
  bool random = false;       ///< bars folding
  bool commutative = false;      ///< of two inputs: f(a, b) = f(b, a), bit for bit, so that equal nodes are found in either order
  bool zero_preserving = false;  ///< zeros give zeros; read by check_op alone yet
  bool joins_towers = false;  ///< of a per-tower input it is the mean over the towers: lowered to an aggregate
  bool sum_of_inputs = false; ///< y is the sum of its inputs: expand may cut it where only some are partial
  bool by_element = false;   ///< an output's element is computed from those of the inputs at its place and from inputs of one element
  bool stores = false;       ///< moves elements and never computes with them: takes f16 and bf16 as they are
  bool exact = false;        ///< + − × ÷ √ fma per element: every kernel gives the same bits
  Precision precision = Precision::full;

  bool takes_halves() const { return stores || precision != Precision::full; }
  bool elementwise() const { return !scalar.empty(); }
  /// May it be computed on a range of the elements, where its inputs have as many as its outputs, or one?
  bool on_ranges() const { return by_element || elementwise() || sum_of_inputs; }
  bool differentiable() const { return static_cast<bool>(gradient.build); }
};

/// The ops of a library, by name. Built once, then immutable.
class OpSet {
 public:
  /// UserError if the name is taken. The reference of an op with a precision is made to take halves.
  void add(OpDef def);
  const OpDef* find(std::string_view name) const;
  /// UserError with the nearest names if there is none.
  const OpDef& at(std::string_view name) const;
  const std::vector<std::unique_ptr<OpDef>>& all() const { return defs_; }

 private:
  std::vector<std::unique_ptr<OpDef>> defs_;
};

}  // namespace belfry
