#include <belfry/graph/plan/accumulated.h>

#include <algorithm>

#include <belfry/graph/split_state.h>

namespace belfry {

std::vector<Accumulated> accumulated(const std::vector<int>& owners, int towers) {
  std::vector<Accumulated> out(owners.size());
  std::vector<int> present_before(1, -1);  // per tower and past the last, the last one before it that is there
  for (std::size_t t = 0; t < owners.size(); ++t) present_before.push_back(owners[t] >= 0 ? static_cast<int>(t) : present_before.back());
  std::map<int, std::vector<int>> stacks;  // device → towers whose sums are there
  for (const Piece& p : pieces(owners, towers))
    for (int t = p.low; t < std::min(p.high, static_cast<int>(owners.size())); ++t) {
      if (owners[static_cast<std::size_t>(t)] < 0) continue;
      int low = p.low, high = p.high;  // becomes the largest subtree that ends with this tower
      while (present_before[static_cast<std::size_t>(std::min(high, static_cast<int>(owners.size())))] != t) {
        const int middle = low + tree_cut(high - low);
        (t < middle ? high : low) = middle;
      }
      std::vector<int>& stack = stacks[p.device];
      Accumulated& mine = out[static_cast<std::size_t>(t)];
      mine = {low, high, 0, {}};
      while (!stack.empty() && out[static_cast<std::size_t>(stack.back())].low >= low) {
        out[static_cast<std::size_t>(stack.back())].stays = false;
        mine.reads.insert(mine.reads.begin(), stack.back());
        stack.pop_back();
      }
      mine.at = static_cast<int>(stack.size());
      stack.push_back(t);
    }
  return out;
}

std::vector<int> stack_depths(const std::vector<int>& owners, int towers, std::size_t devices) {
  std::vector<int> out(devices);
  const std::vector<Accumulated> all = accumulated(owners, towers);
  for (std::size_t t = 0; t < owners.size(); ++t)
    if (const auto d = static_cast<std::size_t>(owners[t]); d < devices) out[d] = std::max(out[d], all[t].at + 1);
  return out;
}

}  // namespace belfry
