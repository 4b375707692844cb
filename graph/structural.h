// Names of the ops that the compiler itself speaks of; all others it knows by their OpDef alone.
#pragma once

namespace belfry {

inline constexpr const char* kInput = "input";
inline constexpr const char* kVariable = "variable";
inline constexpr const char* kConstant = "constant";
inline constexpr const char* kAddN = "add_n";
inline constexpr const char* kCast = "cast";
inline constexpr const char* kReduceSum = "reduce_sum";
/// In plans: a value to another device, of a row range (split); the joining of towers; of the ranges that devices hold;
/// several nodes as one kernel; a fetched value on the host; a variable's new value written at the end of the step.
inline constexpr const char* kCopy = "copy";
inline constexpr const char* kSplit = "split";
inline constexpr const char* kAggregate = "aggregate";
inline constexpr const char* kAllGather = "all_gather";
inline constexpr const char* kPreAggregate = "pre_aggregate";
inline constexpr const char* kFused = "fused";
/// The kind of a fused node that is a tree of nodes which compute each element by itself, all of its own shape.
inline constexpr const char* kElementwise = "elementwise";
/// Of one that is a node with such a tree that reads its first output, one that makes an input of it, or both.
inline constexpr const char* kWithElementwise = "with_elementwise";
inline constexpr const char* kFetch = "fetch";
inline constexpr const char* kStore = "store";
/// In the name of a kernel whose bits may differ from run to run.
inline constexpr const char* kNondeterministic = "_nondeterministic";
/// Behind the name of a node that is computed once more in backward.
inline constexpr const char* kAgain = ".again";

}  // namespace belfry
