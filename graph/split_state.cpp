#include <belfry/graph/split_state.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

std::string to_string(const SplitState& s) {
  switch (s.kind) {
    case SplitState::kReplicated: return "replicated";
    case SplitState::kRows: return fmt::format("rows({})", s.axis);
    case SplitState::kPartial: return s.reduction == Reduction::sum ? "partial(sum)" : "partial(max)";
    case SplitState::kPerTower: break;
  }
  return "per_tower";
}

SplitState parse_split_state(const std::string& text) {
  if (text == "replicated") return kReplicated;
  if (text == "per_tower") return kPerTower;
  if (text == "partial(sum)") return partial(Reduction::sum);
  if (text == "partial(max)") return partial(Reduction::max);
  constexpr std::string_view kBegin = "rows(";
  int axis = -1;
  if (text.starts_with(kBegin)) std::from_chars(text.data() + kBegin.size(), text.data() + text.size(), axis);
  if (axis >= 0 && text == to_string(rows(axis))) return rows(axis);
  throw UserError(fmt::format("'{}' is no split state; write replicated, rows(0), partial(sum), partial(max) or per_tower", text));
}

std::string to_string(Combine combine) {
  constexpr const char* kNames[] = {"global_mean", "tower_mean", "tower_sum"};
  return kNames[static_cast<int>(combine)];
}

Combine parse_combine(const std::string& text) {
  for (Combine c : {Combine::global_mean, Combine::tower_mean, Combine::tower_sum})
    if (to_string(c) == text) return c;
  throw UserError(fmt::format("combine is '{}'; it can be global_mean, tower_mean or tower_sum", text));
}

Range share_of(std::int64_t count, std::int64_t parts, std::int64_t i) {
  std::int64_t each = count / parts, more = count % parts;
  std::int64_t first = i * each + std::min(i, more);
  return {first, first + each + (i < more ? 1 : 0)};
}

std::int64_t share_with(std::int64_t count, std::int64_t parts, std::int64_t k) {
  const std::int64_t each = count / parts, more = count % parts, longer = more * (each + 1);
  return k < longer ? k / (each + 1) : more + (k - longer) / each;
}

int tree_cut(int n) {
  int cut = 1;
  while (2 * cut < n) cut *= 2;
  return cut;
}

std::vector<Range> complete_subtrees(Range held, int towers) {
  std::vector<Range> out;
  std::function<void(int, int)> walk = [&](int low, int high) {
    if (held.first <= low && high <= held.past) return out.push_back({low, high});
    if (held.past <= low || high <= held.first || high - low == 1) return;
    int middle = low + tree_cut(high - low);
    walk(low, middle);
    walk(middle, high);
  };
  walk(0, towers);
  return out;
}

}  // namespace belfry
