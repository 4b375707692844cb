#include <memory>
#include <utility>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/onednn_internal.h>
#include <belfry/ops/matmul/matmul.h>
#include <belfry/ops/matmul/roles_internal.h>

namespace belfry {

namespace {

using onednn::Product;

/// Strides of a matrix; an axis of size 1 has none of its own, and gets one that oneDNN takes for dense.
void add_matrix(Extents& out, std::int64_t rows, std::int64_t row_step, std::int64_t columns, std::int64_t column_step) {
  if (columns == 1) row_step = std::max<std::int64_t>(row_step, 1), column_step = 1;
  else if (rows == 1) row_step = column_step == 1 ? columns : 1;
  out.insert(out.end(), {row_step, column_step});
}

/// y = a·b, or its transpose bᵀ·aᵀ where y has the columns before the rows; `loops` are summed axes that lie apart.
struct Plan {
  Product product;
  bool swapped = false;
  std::vector<Axis> loops;
};

Plan plan_of(const KernelRequest& r) {
  const Extents &sa = r.inputs[0].shape, &sb = r.inputs[1].shape, &sy = r.outputs[0].shape;
  Roles roles = roles_of(letters_of(r.attributes->text("equation"), static_cast<int>(sa.size()), static_cast<int>(sb.size())), sa, sb, sy);
  Plan out;
  Axis m = chosen(roles.m, roles.batch), n = chosen(roles.n, roles.batch), k = chosen(roles.k, out.loops);
  out.swapped = n.size > 1 && m.size > 1 && n.y > m.y;
  Product& p = out.product;
  p.k = k.size;
  if (out.swapped) {
    std::swap(m, n);
    for (Axis* x : {&m, &n, &k}) std::swap(x->a, x->b);
    for (Axis& x : roles.batch) std::swap(x.a, x.b);
  }
  p.dtype = r.inputs[0].dtype;
  p.result = r.outputs[0].dtype;
  p.m = m.size;
  p.n = n.size;
  for (const Axis& x : roles.batch) p.batch.push_back(x.size), p.a.push_back(x.a), p.b.push_back(x.b), p.y.push_back(x.y);
  add_matrix(p.a, m.size, m.a, k.size, k.a);
  add_matrix(p.b, k.size, k.b, n.size, n.b);
  add_matrix(p.y, m.size, m.y, n.size, n.y);
  return out;
}

/// The first product writes y, those of the further summed axes are added to it.
std::unique_ptr<onednn::Primitive> made(Plan plan, int threads, bool further) {
  plan.product.accumulate = further;
  return onednn::make(plan.product, threads);
}

/// The next index, row-major; false behind the last, which is the first again.
bool next(Extents& index, const Extents& sizes) {
  for (std::size_t i = sizes.size(); i-- > 0; index[i] = 0)
    if (++index[i] < sizes[i]) return true;
  return false;
}

Support supports(const KernelRequest& r) {
  if (Support s = onednn_takes(r); !s.ok) return s;
  if (r.inputs[0].elements() == 0 || r.inputs[1].elements() == 0 || r.outputs[0].elements() == 0) return refuse("there are no elements");
  Plan plan = plan_of(r);
  auto first = made(plan, r.threads, false);
  if (!first) return refuse("oneDNN has no fast form of it");
  std::int64_t scratch = first->scratch_bytes();
  if (!plan.loops.empty() && is_half(plan.product.result)) return refuse("summed axes lie apart, and sums are not taken in halves");
  if (!plan.loops.empty()) {
    auto further = made(plan, r.threads, true);
    if (!further) return refuse("summed axes lie apart, and oneDNN has no fast form that adds");
    scratch = std::max(scratch, further->scratch_bytes());
  }
  Support s = accept(scratch);
  s.in_place = false;
  return s;
}

}  // namespace

std::vector<Kernel> matmul_cpu() {
  return {{.name = "onednn_matmul", .op = "matmul", .supports = supports, .prepare = [](const KernelRequest& r) {
             Plan plan = plan_of(r);
             Extents sizes;
             for (const Axis& x : plan.loops) sizes.push_back(x.size);
             std::shared_ptr<onednn::Primitive> first = made(plan, r.threads, false), further = plan.loops.empty() ? nullptr : made(plan, r.threads, true);
             return prepared([=, index = Extents(sizes.size(), 0)](const Arguments& x) mutable {
               const auto bytes = static_cast<std::int64_t>(size_of(plan.product.dtype));
               bool begun = false;
               do {
                 std::int64_t at_a = 0, at_b = 0;
                 for (std::size_t i = 0; i < index.size(); ++i) at_a += index[i] * plan.loops[i].a, at_b += index[i] * plan.loops[i].b;
                 const std::byte *a = x.inputs[0] + bytes * at_a, *b = x.inputs[1] + bytes * at_b;
                 const std::byte* at[] = {plan.swapped ? b : a, plan.swapped ? a : b, x.outputs[0]};
                 (begun ? further : first)->run(at, x.scratch);
                 begun = true;
               } while (next(index, sizes));
             });
           },
           .halves = true}};
}

}  // namespace belfry
