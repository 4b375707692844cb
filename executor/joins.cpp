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

/// One block of elements after the other goes through the whole tree.
template <class T, class Add>
void walk(const std::vector<int>& tree, std::span<const std::byte* const> data, std::size_t count, T* out, std::vector<const void*>& top, std::byte* blocks, Add add) {
  const std::size_t block = std::min(kBlock, count);
  for (std::size_t first = 0; first < count; first += block) {
    std::size_t n = std::min(block, count - first), depth = 0;
    for (int step : tree) {
      if (step >= 0) {
        top[depth++] = reinterpret_cast<const T*>(data[static_cast<std::size_t>(step)]) + first;
      } else {
        const T *a = static_cast<const T*>(top[depth - 2]), *b = static_cast<const T*>(top[depth - 1]);
        T* to = reinterpret_cast<T*>(blocks) + (depth - 2) * block;
        for (std::size_t i = 0; i < n; ++i) to[i] = add(a[i], b[i]);
        top[--depth - 1] = to;
      }
    }
    std::copy(static_cast<const T*>(top[0]), static_cast<const T*>(top[0]) + n, out + first);
  }
}

struct Runs {
  Runs(const LocalType& t, int axis) {
    for (int i = 0; i < axis; ++i) outer *= t.shape[static_cast<std::size_t>(i)];
    for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < t.shape.size(); ++i) row *= t.shape[i];
    rows = t.shape[static_cast<std::size_t>(axis)];
  }
  std::int64_t outer = 1, rows = 1, row = 1;  ///< row: elements behind the axis
};

}  // namespace

std::vector<int> join_tree(const JoinRequest& request) {
  std::vector<int> out;
  for (int part : request.ring) {
    out.push_back(part);
    if (out.size() > 1) out.push_back(-1);
  }
  if (out.empty()) plan_tree(request.parts, 0, request.towers, request.present, out);
  return out;
}

bool computes(const JoinRequest& request) { return request.how == "sum" || request.how == "max" || request.how == "mean"; }

Join::Join(JoinRequest request, LocalType type) : request_(std::move(request)), type_(std::move(type)) {
  if (!computes(request_)) return;
  if (type_.dtype == DType::boolean && request_.how != "max") throw UserError("booleans have no " + request_.how + "; they can be joined by max, which is true where one is");
  tree_ = join_tree(request_);
  std::size_t depth = 0, deepest = 0;
  for (int step : tree_) deepest = std::max(deepest, step >= 0 ? ++depth : --depth);
  top_.resize(deepest);
  blocks_.resize((std::max<std::size_t>(deepest, 1) - 1) * std::min(kBlock, static_cast<std::size_t>(type_.elements())) * size_of(type_.dtype));
}

void Join::operator()(std::span<const std::byte* const> data, std::byte* out) {
  if (!tree_.empty()) return reduce(data, out);
  carry_join(request_, type_, [&](const CarriedRows& c) {
    for (std::int64_t r = 0; r < c.rows; ++r) std::memcpy(out + c.to + r * c.to_step, data[c.part] + c.from + r * c.from_step, static_cast<std::size_t>(c.bytes));
  });
}

void Join::reduce(std::span<const std::byte* const> data, std::byte* out) {
  auto count = static_cast<std::size_t>(type_.elements());
  auto go = [&]<class T>(T* y, auto add) { walk<T>(tree_, data, count, y, top_, blocks_.data(), add); };
  if (type_.dtype == DType::boolean) return go(reinterpret_cast<std::uint8_t*>(out), [](std::uint8_t a, std::uint8_t b) { return std::max(a, b); });
  visit_dtype(type_.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      T* y = reinterpret_cast<T*>(out);
      if (request_.how == "max") go(y, [](T a, T b) { return a >= b || a != a ? a : b; });
      else go(y, [](T a, T b) { return static_cast<T>(a + b); });
      if (request_.how == "mean")
        for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<T>(y[i] / static_cast<T>(request_.present));
    }
  });
}

void carry_join(const JoinRequest& request, const LocalType& type, const CarryRows& carry) {
  if (request.how == "same") return carry({.bytes = type.bytes()});
  std::int64_t at = 0;
  if (request.how == "stack") {
    for (std::size_t i = 0; i < request.parts.size(); ++i) {
      carry({.part = i, .to = at, .bytes = request.parts[i].type.bytes()});
      at += request.parts[i].type.bytes();
    }
    return;
  }
  Runs to(type, request.axis);
  std::int64_t row = to.row * static_cast<std::int64_t>(size_of(type.dtype));
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    Runs from(request.parts[i].type, request.axis);
    carry({i, 0, at * row, from.rows * row, from.outer, from.rows * row, to.rows * row});
    at += from.rows;
  }
}

void carry_rows(const LocalType& from, int axis, std::int64_t first, std::int64_t count, const CarryRows& carry) {
  Runs runs(from, axis);
  std::int64_t row = runs.row * static_cast<std::int64_t>(size_of(from.dtype)), bytes = count * row;
  carry({0, first * row, 0, bytes, runs.outer, runs.rows * row, bytes});
}

}  // namespace belfry
