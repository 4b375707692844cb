#include <belfry/executor/joins.h>

#include <algorithm>
#include <cstring>

#include <belfry/graph/error.h>
#include <belfry/graph/split_state.h>

namespace belfry {

namespace {

constexpr std::size_t kBlock = 512;  // elements that stay in the first-level cache while the tree is walked

/// Pairs of the tree over the parts, as instructions on a stack: n ≥ 0 pushes part n, -1 adds the top two.
void plan_tree(const std::vector<JoinPart>& parts, int low, int high, int past, std::vector<int>& program) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].low == low && (parts[i].high == high || (parts[i].high >= past && high >= past))) return program.push_back(static_cast<int>(i));
  if (high - low <= 1) throw InternalError("a join lacks the part of tower " + std::to_string(low));
  int middle = low + tree_cut(high - low);
  plan_tree(parts, low, middle, past, program);
  if (middle >= past) return;
  plan_tree(parts, middle, high, past, program);
  program.push_back(-1);
}

template <class T, class Add>
void walk(const std::vector<int>& program, const std::vector<JoinPart>& parts, std::size_t count, T* out, Add add) {
  std::vector<std::vector<T>> stack(parts.size(), std::vector<T>(kBlock));
  std::vector<const T*> top(parts.size() + 1);
  for (std::size_t first = 0; first < count; first += kBlock) {
    std::size_t n = std::min(kBlock, count - first), depth = 0;
    for (int step : program) {
      if (step >= 0) {
        top[depth++] = reinterpret_cast<const T*>(parts[static_cast<std::size_t>(step)].data) + first;
      } else {
        const T *a = top[depth - 2], *b = top[depth - 1];
        T* to = stack[depth - 2].data();
        for (std::size_t i = 0; i < n; ++i) to[i] = add(a[i], b[i]);
        top[--depth - 1] = to;
      }
    }
    std::copy(top[0], top[0] + n, out + first);
  }
}

void reduce(const std::string& how, int towers, int present, const std::vector<JoinPart>& parts, const LocalType& type, std::byte* out) {
  std::vector<int> program;
  plan_tree(parts, 0, towers, present, program);
  auto count = static_cast<std::size_t>(type.elements());
  if (type.dtype == DType::boolean) {
    if (how != "max") throw UserError("booleans have no " + how + "; they can be joined by max, which is true where one is");
    return walk<std::uint8_t>(program, parts, count, reinterpret_cast<std::uint8_t*>(out), [](std::uint8_t a, std::uint8_t b) { return std::max(a, b); });
  }
  visit_dtype(type.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      T* y = reinterpret_cast<T*>(out);
      if (how == "max") walk<T>(program, parts, count, y, [](T a, T b) { return a >= b || a != a ? a : b; });
      else walk<T>(program, parts, count, y, [](T a, T b) { return static_cast<T>(a + b); });
      if (how == "mean")
        for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<T>(y[i] / static_cast<T>(present));
    }
  });
}

struct Runs {
  Runs(const LocalType& t, int axis) {
    for (int i = 0; i < axis; ++i) outer *= static_cast<std::size_t>(t.shape[static_cast<std::size_t>(i)]);
    for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < t.shape.size(); ++i) row *= static_cast<std::size_t>(t.shape[i]);
    rows = static_cast<std::size_t>(t.shape[static_cast<std::size_t>(axis)]);
  }
  std::size_t outer = 1, rows = 1, row = 1;  ///< row: elements behind the axis
};

}  // namespace

void join(const std::string& how, int axis, int towers, int present, const std::vector<JoinPart>& parts, const LocalType& type, std::byte* out) {
  if (how == "sum" || how == "max" || how == "mean") return reduce(how, towers, present, parts, type, out);
  if (how == "same") return void(std::memcpy(out, parts[0].data, static_cast<std::size_t>(type.bytes())));
  if (how == "stack") {
    for (const JoinPart& p : parts) {
      std::memcpy(out, p.data, static_cast<std::size_t>(p.type.bytes()));
      out += p.type.bytes();
    }
    return;
  }
  Runs to(type, axis);
  std::size_t at = 0, row = to.row * size_of(type.dtype);
  for (const JoinPart& p : parts) {
    Runs from(p.type, axis);
    for (std::size_t o = 0; o < from.outer; ++o) std::memcpy(out + (o * to.rows + at) * row, p.data + o * from.rows * row, from.rows * row);
    at += from.rows;
  }
}

void slice_rows(const LocalType& from, const std::byte* data, int axis, std::int64_t first, std::int64_t count, std::byte* out) {
  Runs runs(from, axis);
  std::size_t row = runs.row * size_of(from.dtype), bytes = static_cast<std::size_t>(count) * row;
  for (std::size_t o = 0; o < runs.outer; ++o) std::memcpy(out + o * bytes, data + (o * runs.rows + static_cast<std::size_t>(first)) * row, bytes);
}

}  // namespace belfry
