// Comparisons and logic, one element at a time: references and kernels share them.
#pragma once

namespace belfry::compare_formulas {

struct Equal { template <class T> bool operator()(T a, T b) const { return a == b; } };
struct NotEqual { template <class T> bool operator()(T a, T b) const { return a != b; } };
struct Less { template <class T> bool operator()(T a, T b) const { return a < b; } };
struct LessEqual { template <class T> bool operator()(T a, T b) const { return a <= b; } };
struct Greater { template <class T> bool operator()(T a, T b) const { return a > b; } };
struct GreaterEqual { template <class T> bool operator()(T a, T b) const { return a >= b; } };
struct And { bool operator()(bool a, bool b) const { return a && b; } };
struct Or { bool operator()(bool a, bool b) const { return a || b; } };

}  // namespace belfry::compare_formulas
