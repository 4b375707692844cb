#include <belfry/graph/plan/placement.h>

#include <algorithm>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

std::string to_string(PhaseOrder order) {
  constexpr const char* kNames[] = {"by_tower", "gpipe", "1f1b", "interleaved"};
  return kNames[static_cast<int>(order)];
}

int in_flight(PhaseOrder order, int towers, int stages) {
  return order == PhaseOrder::by_tower ? 1 : order == PhaseOrder::gpipe ? towers : std::min(towers, stages);
}

PhaseOrder parse_phase_order(std::string_view text) {
  for (PhaseOrder o : {PhaseOrder::by_tower, PhaseOrder::gpipe, PhaseOrder::one_f_one_b, PhaseOrder::interleaved})
    if (to_string(o) == text) return o;
  throw UserError(fmt::format("the order of phases is '{}'; it can be by_tower, gpipe, 1f1b or interleaved", text));
}

std::string to_string(Collectives collectives) { return collectives == Collectives::tree ? "tree" : "fastest"; }

Collectives parse_collectives(std::string_view text) {
  for (Collectives c : {Collectives::tree, Collectives::fastest})
    if (to_string(c) == text) return c;
  throw UserError(fmt::format("collectives are '{}'; they can be tree (our own, with the same bits on any devices) or fastest (a library's)", text));
}

std::string to_string(SumWay way) {
  constexpr const char* kNames[] = {"direct", "groups", "ring"};
  return kNames[static_cast<int>(way)];
}

SumWay parse_sum_way(std::string_view text) {
  for (SumWay w : {SumWay::direct, SumWay::groups, SumWay::ring})
    if (to_string(w) == text) return w;
  throw UserError(fmt::format("the way of a sum is '{}'; it can be direct, groups or ring", text));
}

std::pair<int, std::string> split_match(const std::string& match) {
  if (!match.starts_with("tower_")) return {-2, match};
  auto slash = match.find('/');
  if (slash == match.npos) return {-2, match};
  std::string which = match.substr(6, slash - 6);
  if (which == "*") return {-1, match.substr(slash + 1)};
  if (which.empty() || which.size() > 6 || which.find_first_not_of("0123456789") != which.npos) return {-2, match};
  return {std::stoi(which), match.substr(slash + 1)};
}

}  // namespace belfry
