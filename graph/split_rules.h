// Split rules that rooms share. A rule says in which states an op reads its inputs, given what it is offered, and
// which states its outputs then have. The algebra is that of section 5 of docs/design.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/contexts.h>

namespace belfry {

/// A value whose type holds the row symbol is rows, at once, where it arises.
SplitState settled(const Shape& shape, SplitState state);
/// Sources that are computed where they are read: each tower its own share.
SplitRule split_of_source();
/// Feeds and state: held whole; towers read a split.
SplitRule held_whole();
/// Elementwise ops. `joint`: all operands partial of this reduction, or none. `each`: operands of which one alone may be partial(sum).
SplitRule split_elementwise(std::optional<Reduction> joint = {}, std::vector<int> each = {});
/// A sum of any number of operands; expand cuts it where some are partial and some are not.
SplitRule split_sum();
/// Two operands with a letter per axis; letters that `out` lacks are summed.
Split split_contraction(const SplitContext& c, const std::string& a, const std::string& b, const std::string& out);
/// sum or max over the axes in `axes` (empty: all), kept as 1 where `keep` is set.
SplitRule split_reduction(Reduction reduction);
SplitRule split_reshape();
SplitRule split_transpose();
/// Input 0 stretched to the shape of input 1, of which only the shape is read.
SplitRule split_broadcast_like();
/// Works along one axis: rows stay unless they are that axis; then they move to another row axis if the type has one.
/// With `removes` the axis is gone from the output.
SplitRule rows_unless_along(std::string attribute, bool removes = false);
/// Input `lead` is worked on row by row along axis `axis` (any axis if -1); all other inputs are read whole, unless per tower.
SplitRule row_by_row(int lead = 0, int axis = -1);
/// All inputs whole, all outputs replicated: optimisers, scalars, what cannot be split.
SplitRule all_replicated();
/// tower_mean and its like: per-tower values are joined, anything else is read whole, rows too: the node is lowered to an aggregate, which
/// joins values of one type and has no share of its own.
SplitRule split_of_join();

/// How an operand of a type is read where the result is rows(axis) of `rank` axes: rows where it has the symbol, else whole.
SplitState aligned(const Shape& shape, int axis, int rank);
/// Where rows on `axis` land after a reshape: the row dimension must lead its merged group, ones aside, on both sides.
std::optional<int> reshaped_axis(const Shape& before, const Shape& after, int axis);

}  // namespace belfry
