#include <belfry/ops/cpu/strided_internal.h>

namespace belfry {

Extents stretched_strides(const Extents& operand, const Extents& out) {
  Extents strides(out.size(), 0);
  std::int64_t step = 1;
  for (std::size_t i = operand.size(); i-- > 0;) {
    if (operand[i] != 1) strides[out.size() - operand.size() + i] = step;
    step *= operand[i];
  }
  return strides;
}

Walk::Walk(const Extents& out, const std::vector<Extents>& operand_strides) : strides(operand_strides.size()), inner(operand_strides.size(), 0) {
  Extents all;
  std::vector<Extents> steps(operand_strides.size());
  for (std::size_t a = 0; a < out.size(); ++a) {
    if (out[a] == 1) continue;
    bool together = !all.empty();
    for (std::size_t k = 0; together && k < steps.size(); ++k) together = steps[k].back() == operand_strides[k][a] * out[a];
    if (together) all.back() *= out[a];
    else all.push_back(out[a]);
    for (std::size_t k = 0; k < steps.size(); ++k) {
      if (together) steps[k].back() = operand_strides[k][a];
      else steps[k].push_back(operand_strides[k][a]);
    }
  }
  if (all.empty()) return;
  run = all.back();
  sizes.assign(all.begin(), all.end() - 1);
  for (std::int64_t n : sizes) outer *= n;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    inner[k] = steps[k].back();
    strides[k].assign(steps[k].begin(), steps[k].end() - 1);
  }
}

}  // namespace belfry
