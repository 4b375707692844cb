// What the reference and the kernel of attention share: sizes, and where the mask of a head lies.
#pragma once

#include <algorithm>
#include <cmath>

#include <belfry/graph/contexts.h>
#include <belfry/ops/loops.h>

namespace belfry {

/// Whether the axis of heads stands behind that of places.
inline bool heads_behind(const Attributes& a) { return a.text("layout") != "bhtk"; }
/// What layout says of q, k and v that lie side by side at each place, (…, places, 3, heads, features), as packed_attention has them.
inline constexpr const char* kPacked = "bt3hk";

struct AttentionLayout {
  AttentionLayout(const Attributes& a, const Extents& q, const Extents& k, const Extents& v)
      : lead(q.begin(), q.end() - 2), width(q.back()), value_width(v.back()), causal(a.flag("causal")),
        scale(a.real("scale") != 0 ? a.real("scale") : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 1)))) {
    const std::size_t places = q.size() - (heads_behind(a) ? 3 : 2);
    if (heads_behind(a)) lead.back() = beside = q[q.size() - 2];
    apart = a.text("layout") == kPacked ? 3 * beside : beside;
    heads = elements(lead), queries = q[places], keys = k[places];
  }
  /// The keys that query i may see, without the mask.
  std::int64_t seen(std::int64_t i) const { return causal ? std::min(keys, i + 1) : keys; }
  /// Where a head begins in q, k, v and their gradients, and how far its places lie apart.
  std::int64_t begin(std::int64_t head, std::int64_t places, std::int64_t features) const { return (head / beside * places * apart + head % beside) * features; }
  std::int64_t step(std::int64_t features) const { return apart * features; }
  /// The same in y and its gradient.
  std::int64_t y_begin(std::int64_t head) const { return (head / beside * queries * beside + head % beside) * value_width; }
  std::int64_t y_step() const { return beside * value_width; }

  Extents lead;  ///< of the scores: heads last
  std::int64_t heads = 0, queries = 0, keys = 0, width, value_width;
  std::int64_t beside = 1;  ///< heads whose features lie side by side at a place
  std::int64_t apart = 1;   ///< as many, and of q, k and v where these lie side by side too
  bool causal;
  double scale;
};

/// Steps through a mask of any shape that broadcasts to (lead, queries, keys).
struct MaskSteps {
  MaskSteps() = default;
  MaskSteps(const AttentionLayout& l, const Extents& mask) {
    std::size_t rank = l.lead.size() + 2, skip = rank - mask.size();
    Extents step(rank, 0);
    std::int64_t below = 1;
    for (std::size_t i = mask.size(); i-- > 0; below *= mask[i]) step[skip + i] = mask[i] == 1 ? 0 : below;
    key = step[rank - 1];
    query = step[rank - 2];
    of_lead.assign(step.begin(), step.end() - 2);
    for_each_index(l.lead, [&](const Extents& at) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < at.size(); ++i) offset += at[i] * step[i];
      of_head.push_back(offset);
    });
  }
  std::int64_t query = 0, key = 0;
  Extents of_lead;  ///< along the leading axes
  Extents of_head;  ///< where the mask of each head begins
};

}  // namespace belfry
