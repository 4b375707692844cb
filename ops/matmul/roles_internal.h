// The axes of a contraction by role: what kernels of the CPU and the GPU make a matrix product of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/shape.h>
#include <belfry/ops/matmul/matmul.h>

namespace belfry {

/// One or more letters that lie together in all operands that have them: a size, and a stride in a, b and y, 0 where the operand lacks them.
struct Axis {
  std::int64_t size = 1, a = 0, b = 0, y = 0;
};

inline std::int64_t stride(const std::string& letters, const Extents& shape, char c) {
  std::size_t at = letters.find(c);
  std::int64_t out = at == letters.npos ? 0 : 1;
  for (std::size_t k = at == letters.npos ? shape.size() : at + 1; k < shape.size(); ++k) out *= shape[k];
  return out;
}

/// The axes of a product by role. Of rows and columns one axis goes into the matrices, the others are batch axes that one operand
/// lacks; further summed axes are added one after the other.
struct Roles {
  std::vector<Axis> batch, m, n, k;
};

inline Roles roles_of(const Letters& l, const Extents& sa, const Extents& sb, const Extents& sy) {
  Roles out;
  auto put = [&](std::vector<Axis>& role, char c, std::int64_t size) {
    if (size == 1) return;
    Axis x{size, stride(l.a, sa, c), stride(l.b, sb, c), stride(l.y, sy, c)};
    bool together = !role.empty() && role.back().a == x.a * size && role.back().b == x.b * size && role.back().y == x.y * size;
    if (together) x.size *= role.back().size, role.pop_back();
    role.push_back(x);
  };
  auto in = [](const std::string& letters, char c) { return letters.find(c) != letters.npos; };
  for (std::size_t i = 0; i < l.y.size(); ++i) put(in(l.a, l.y[i]) && in(l.b, l.y[i]) ? out.batch : in(l.a, l.y[i]) ? out.m : out.n, l.y[i], sy[i]);
  for (std::size_t i = 0; i < l.a.size(); ++i)
    if (!in(l.y, l.a[i])) put(out.k, l.a[i], sa[i]);
  return out;
}

/// The axis that goes into the matrices: one whose elements lie side by side, else the longest; {1} where there is none.
inline Axis chosen(std::vector<Axis>& role, std::vector<Axis>& others) {
  if (role.empty()) return {};
  auto rank = [](const Axis& x) { return std::pair(x.y == 1 ? 2 : x.a == 1 || x.b == 1, x.size); };
  auto best = std::max_element(role.begin(), role.end(), [&](const Axis& p, const Axis& q) { return rank(p) < rank(q); });
  Axis out = *best;
  role.erase(best);
  others.insert(others.end(), role.begin(), role.end());
  return out;
}

}  // namespace belfry
