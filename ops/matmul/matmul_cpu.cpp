#include <optional>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/matmul/matmul.h>
#include <belfry/ops/cpu/onednn_internal.h>

namespace belfry {

namespace {

using onednn::Product;

/// The letters of one role as a single axis of an operand: its size and stride, or nothing where they do not lie together.
struct Merged {
  std::int64_t size = 1, stride = 0;
};

std::optional<Merged> merged(const std::string& role, const std::string& letters, const Extents& shape) {
  Merged out;
  bool first = true;
  for (std::size_t i = role.size(); i-- > 0;) {  // from the last letter, which moves fastest
    std::size_t at = letters.find(role[i]);
    if (shape[at] == 1) continue;
    std::int64_t stride = 1;
    for (std::size_t k = at + 1; k < shape.size(); ++k) stride *= shape[k];
    if (!first && stride != out.stride * out.size) return {};
    if (first) out.stride = stride;
    out.size *= shape[at];
    first = false;
  }
  return out;
}

/// Strides of a matrix; an axis of size 1 has none of its own, and gets one that oneDNN takes for dense.
void fill(std::int64_t* out, const Merged& batch, const Merged& rows, const Merged& columns) {
  out[0] = batch.stride;
  out[1] = rows.stride;
  out[2] = columns.stride;
  if (columns.size == 1) {
    out[1] = std::max<std::int64_t>(rows.stride, 1);
    out[2] = 1;
  } else if (rows.size == 1) {
    out[1] = columns.stride == 1 ? columns.size : 1;
  }
}

/// y = a·b, or its transpose bᵀ·aᵀ where y has the columns before the rows.
struct Plan {
  Product product;
  bool swapped = false;
};

std::optional<Plan> plan_of(const KernelRequest& r) {
  const Extents &sa = r.inputs[0].shape, &sb = r.inputs[1].shape, &sy = r.outputs[0].shape;
  Letters l = letters_of(r.attributes->text("equation"), static_cast<int>(sa.size()), static_cast<int>(sb.size()));
  auto in = [](const std::string& letters, char c) { return letters.find(c) != letters.npos; };
  std::string batch, m, n, k;
  for (char c : l.y) (in(l.a, c) && in(l.b, c) ? batch : in(l.a, c) ? m : n) += c;
  for (char c : l.a)
    if (!in(l.y, c)) k += c;
  auto ab = merged(batch, l.a, sa), am = merged(m, l.a, sa), ak = merged(k, l.a, sa);
  auto bb = merged(batch, l.b, sb), bk = merged(k, l.b, sb), bn = merged(n, l.b, sb);
  auto yb = merged(batch, l.y, sy), ym = merged(m, l.y, sy), yn = merged(n, l.y, sy);
  for (const auto& x : {ab, am, ak, bb, bk, bn, yb, ym, yn})
    if (!x) return {};
  Plan out{{yb->size, ym->size, yn->size, ak->size, {}, {}, {}}, yn->size > 1 && ym->size > 1 && yn->stride > ym->stride};
  Product& p = out.product;
  if (out.swapped) {
    std::swap(p.m, p.n);
    fill(p.a, *bb, *bn, *bk);
    fill(p.b, *ab, *ak, *am);
    fill(p.y, *yb, *yn, *ym);
  } else {
    fill(p.a, *ab, *am, *ak);
    fill(p.b, *bb, *bk, *bn);
    fill(p.y, *yb, *ym, *yn);
  }
  return out;
}

Support supports(const KernelRequest& r) {
  if (r.inputs[0].dtype != f32) return takes(r, {f32});
  if (r.inputs[0].elements() == 0 || r.inputs[1].elements() == 0 || r.outputs[0].elements() == 0) return refuse("there are no elements");
  auto plan = plan_of(r);
  if (!plan) return refuse("rows, columns or summed axes do not lie together");
  auto primitive = onednn::make(plan->product, r.threads);
  if (!primitive) return refuse("oneDNN has no fast form of it");
  Support s = accept(primitive->scratch_bytes());
  s.in_place = false;
  return s;
}

}  // namespace

std::vector<Kernel> matmul_cpu() {
  return {{.name = "onednn_matmul", .op = "matmul", .supports = supports, .prepare = [](const KernelRequest& r) {
             Plan plan = *plan_of(r);
             return prepared([primitive = onednn::make(plan.product, r.threads), swapped = plan.swapped](const Arguments& x) {
               const std::byte* at[] = {x.inputs[swapped ? 1 : 0], x.inputs[swapped ? 0 : 1], x.outputs[0]};
               primitive->run(at, x.scratch);
             });
           }}};
}

}  // namespace belfry
