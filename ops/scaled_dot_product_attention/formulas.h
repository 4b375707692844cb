// What the reference and the kernel of attention share: sizes, and where the mask of a head lies.
#pragma once

#include <algorithm>
#include <cmath>

#include <belfry/graph/contexts.h>
#include <belfry/ops/loops.h>

namespace belfry {

struct AttentionLayout {
  AttentionLayout(const Attributes& a, const Extents& q, const Extents& k, const Extents& v)
      : lead(q.begin(), q.end() - 2), heads(elements(lead)), queries(q[q.size() - 2]), keys(k[k.size() - 2]), width(q.back()), value_width(v.back()), causal(a.flag("causal")),
        scale(a.real("scale") != 0 ? a.real("scale") : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 1)))) {}
  /// The keys that query i may see, without the mask.
  std::int64_t seen(std::int64_t i) const { return causal ? std::min(keys, i + 1) : keys; }

  Extents lead;
  std::int64_t heads, queries, keys, width, value_width;
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
