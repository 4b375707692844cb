#include <belfry/graph/glob.h>

#include <algorithm>

namespace belfry {

bool glob_matches(std::string_view p, std::string_view t) {
  // Greedy with one backtrack point per star, so that the time stays pattern × text.
  std::size_t i = 0, j = 0, star = p.npos, mark = 0;
  bool deep = false;
  while (j < t.size()) {
    if (i < p.size() && p[i] == '*') {
      deep = p.substr(i).starts_with("**");
      i += deep ? 2 : 1;
      star = i;
      mark = j;
    } else if (i < p.size() && (p[i] == t[j] || p[i] == '?')) {
      ++i, ++j;
    } else if (star != p.npos && (deep || t[mark] != '/')) {
      i = star;
      j = ++mark;
    } else {
      return false;
    }
  }
  while (i < p.size() && p[i] == '*') ++i;
  return i == p.size();
}

std::vector<std::string> globs_of(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (!one.empty()) out.emplace_back(one);
  }
  return out;
}

}  // namespace belfry
