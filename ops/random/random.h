// Random values keyed by global row, so that shares of a batch draw what the whole batch would: uniform, normal, dropout.
#pragma once

#include <functional>

#include <belfry/graph/host_tensor.h>
#include <belfry/ops/emit.h>

namespace belfry {

/// Counter-based by Philox4x32-10: key = seed, counter = (index/4, global row, step, stream), word = index mod 4. The row is
/// along the first row axis of the type (row 0 without one), the index counts inside that row with this axis in front.
/// random_uniform: low + (high − low)·u. random_normal: mean + deviation·z by Box-Muller.
/// dropout: x/(1 − rate) where u ≥ rate, else 0; identity outside training. seed, step: scalars of i64.
std::vector<OpDef> random_defs();

struct RandomOptions {
  double low = 0, high = 1;  ///< normal: mean and deviation
  DType dtype = f32;
  std::string name = {};     ///< gives the stream
};
Value random_uniform(Value seed, Value step, Shape shape, const RandomOptions& options = {}, SourceLine at = SourceLine::here());
Value random_normal(Value seed, Value step, Shape shape, const RandomOptions& options = {}, SourceLine at = SourceLine::here());
Value dropout(Value x, Value seed, Value step, double rate, const std::string& name = {}, SourceLine at = SourceLine::here());

/// The stream of a name: 32 bits, the same on every machine.
std::int64_t stream_of(const std::string& name);
/// Calls f(position, words, word) for every element of a share: what all random kernels are made of.
void for_each_random(const Shape& type, const Extents& shape, std::int64_t first_row, std::uint64_t seed, std::uint32_t step, std::uint32_t stream,
                     const std::function<void(std::size_t at, const std::uint32_t words[4], int word)>& f);
/// How widely a shape's fans let its first values be drawn. All but the last two axes are what a filter sees; these are in and out.
struct FanScales {
  double glorot_limit = 0;  ///< √(6/(in + out)): Glorot and Bengio, 2010
  double he_deviation = 0;  ///< √(2/in): He et al., 2015
};
FanScales fan_scales(const Extents& shape);
/// A tensor of a variable's first values: the named initialiser, keyed by seed and name.
HostTensor initial_value(const Node& variable, std::uint64_t seed);

}  // namespace belfry
