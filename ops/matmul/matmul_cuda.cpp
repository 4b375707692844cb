#include <algorithm>
#include <bit>
#include <functional>

#include <fmt/format.h>

#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/cuda/gemm_internal.h>
#include <belfry/ops/matmul/matmul.h>
#include <belfry/ops/matmul/roles_internal.h>

namespace belfry {

namespace {

/// A matrix of two axes, if cuBLAS takes it: rows or columns side by side. An axis of one element lies as it suits.
bool lies_well(std::int64_t rows, std::int64_t row_step, std::int64_t columns, std::int64_t column_step) { return rows == 1 || columns == 1 || row_step == 1 || column_step == 1; }

cublas_lt::Matrix matrix(std::int64_t rows, std::int64_t row_step, std::int64_t columns, std::int64_t column_step, std::int64_t batch_step) {
  if (columns == 1) column_step = 1;
  if (rows == 1) row_step = column_step == 1 ? columns : 1;
  return {std::max<std::int64_t>(row_step, 1), std::max<std::int64_t>(column_step, 1), batch_step};
}

Axis taken_longest(std::vector<Axis>& axes) {
  if (axes.empty()) return {};
  auto best = std::max_element(axes.begin(), axes.end(), [](const Axis& p, const Axis& q) { return p.size < q.size; });
  Axis out = *best;
  axes.erase(best);
  return out;
}

/// Every index of `axes`, behind every part that is there.
void spread(std::vector<Gemm::Part>& parts, const std::vector<Axis>& axes, bool summed) {
  for (const Axis& axis : axes) {
    std::vector<Gemm::Part> out;
    for (std::int64_t i = 0; i < axis.size; ++i)
      for (const Gemm::Part& p : parts) out.push_back({p.a + i * axis.a, p.b + i * axis.b, p.y + i * axis.y, p.add || (summed && i > 0)});
    parts = std::move(out);
  }
}

Gemm refused(std::string why) {
  Gemm out;
  out.refusal = std::move(why);
  return out;
}

}  // namespace

Gemm gemm_of(const KernelRequest& r) {
  const Extents &sa = r.inputs[0].shape, &sb = r.inputs[1].shape, &sy = r.outputs[0].shape;
  Roles roles = roles_of(letters_of(r.attributes->text("equation"), static_cast<int>(sa.size()), static_cast<int>(sb.size())), sa, sb, sy);
  std::vector<Axis> summed;
  Axis m = chosen(roles.m, roles.batch), n = chosen(roles.n, roles.batch), k = chosen(roles.k, summed), batch = taken_longest(roles.batch);
  double parts = 1;
  for (const auto* axes : {&roles.batch, &summed})
    for (const Axis& x : *axes) parts *= static_cast<double>(x.size);
  if (parts > static_cast<double>(kMostParts)) return refused(fmt::format("its axes lie apart in {:.0f} products; transpose an operand", parts));
  if (!lies_well(m.size, m.a, k.size, k.a) || !lies_well(k.size, k.b, n.size, n.b) || !lies_well(m.size, m.y, n.size, n.y))
    return refused("a matrix has neither its rows nor its columns side by side; transpose an operand");
  for (const Axis* x : {&m, &n, &k, &batch})
    if (x->size >= std::int64_t{1} << 31) return refused("an axis is longer than cuBLAS counts");
  Gemm out;
  const cublas_lt::Matrix a = matrix(m.size, m.a, k.size, k.a, batch.a), b = matrix(k.size, k.b, n.size, n.b, batch.b), y = matrix(m.size, m.y, n.size, n.y, batch.y);
  out.product = {r.inputs[0].dtype, batch.size, m.size, n.size, k.size, a, b, y};
  out.parts = {{}};
  spread(out.parts, roles.batch, false);
  spread(out.parts, summed, true);
  out.product.result = r.outputs[0].dtype;
  if (is_half(out.product.result) && !summed.empty()) return refused("its summed axes lie apart, and sums are not taken in halves");
  std::int64_t bytes = static_cast<std::int64_t>(size_of(r.inputs[0].dtype)), of_y = static_cast<std::int64_t>(size_of(out.product.result)), ways = 64;
  for (const Gemm::Part& p : out.parts) ways |= ((p.a | p.b) * bytes) | p.y * of_y;
  if (batch.size > 1) ways |= ((out.product.a.batch_step | out.product.b.batch_step) * bytes) | out.product.y.batch_step * of_y;
  out.product.alignment = std::int64_t{1} << std::countr_zero(static_cast<std::uint64_t>(ways));
  return out;
}

namespace {

using cublas_lt::Epilogue;

/// The product of a group, whose first member it is.
KernelRequest product_of(const KernelRequest& r) {
  KernelRequest out = r;
  out.attributes = &r.members[0]->attributes;
  return out;
}

}  // namespace

Gemm biased_gemm_of(const KernelRequest& r, Epilogue epilogue) {
  Gemm out = gemm_of(product_of(r));
  if (!out.refusal.empty()) return out;
  const LocalType &bias = r.inputs[2], &y = r.outputs[0];
  if (y.dtype == f64) return refused("cuBLASLt has no epilogues in f64");
  if (bias.dtype != y.dtype) return refused("its bias is of another dtype than its result");
  if (out.parts.size() > 1) return refused("it is more than one product");
  const bool last = bias.shape.size() <= y.shape.size() && std::equal(bias.shape.rbegin(), bias.shape.rend(), y.shape.rbegin());
  const bool along = last && out.product.n == bias.elements() && out.product.y.column_step == 1;
  if (!along || cublas_lt::column_major(out.product).swapped) return refused("its bias does not lie along the columns of one product");
  out.product.epilogue = epilogue;
  return out;
}

namespace {

using Made = std::function<Gemm(const KernelRequest&)>;

/// The product that `make` makes of a request, with the leeway.
Support support(const KernelRequest& r, const Leeway& leeway, const Made& make) {
  if (!cublas_lt::built()) return refuse("Belfry was built without cuBLASLt's header");
  if (!is_float(r.inputs[0].dtype) && !is_half(r.inputs[0].dtype)) return refuse(fmt::format("input 0 is {}", name_of(r.inputs[0].dtype)));
  if (leeway.tf32 && r.inputs[0].dtype != f32) return refuse("it multiplies no f32");
  if (r.inputs[0].elements() == 0 || r.inputs[1].elements() == 0 || r.outputs[0].elements() == 0) return refuse("there are no elements");
  const Gemm gemm = make(r);
  return gemm.refusal.empty() ? Support{true, {}, cublas_lt::kScratchBytes, false} : refuse(gemm.refusal);
}

std::unique_ptr<Prepared> prepare_product(CudaToolkit& toolkit, const KernelRequest& r, Gemm gemm) {
  if (!r.engine.empty() && gemm.parts.size() > 1) throw UserError(fmt::format("[{}] the plan names the algorithm {}, but here it is more than one product; derive the plan anew with belfry place", r.op, r.engine));
  const std::shared_ptr<cublas_lt::Multiplication> first = cublas_lt::multiplication(toolkit, gemm.product, r.engine);
  std::shared_ptr<cublas_lt::Multiplication> adding;
  if (std::any_of(gemm.parts.begin(), gemm.parts.end(), [](const Gemm::Part& p) { return p.add; })) {
    gemm.product.accumulate = true;
    adding = cublas_lt::multiplication(toolkit, gemm.product);
  }
  auto bytes = static_cast<std::int64_t>(size_of(r.inputs[0].dtype)), of_y = static_cast<std::int64_t>(size_of(r.outputs[0].dtype));
  return prepared([=, biased = gemm.product.epilogue != Epilogue::none, parts = std::move(gemm.parts)](const Arguments& x) {
    for (const Gemm::Part& p : parts)
      (p.add ? adding : first)->run(x.inputs[0] + p.a * bytes, x.inputs[1] + p.b * bytes, x.outputs[0] + p.y * of_y, x.scratch, x.stream, biased ? x.inputs[2] : nullptr);
  });
}

/// Its products repeat their bits whatever is left to them.
Kernel kernel(const std::shared_ptr<CudaToolkit>& toolkit, const char* kind, std::vector<std::string> members, const Made& make, bool tf32) {
  const Leeway leeway{.tf32 = tf32};
  auto made = [=](const KernelRequest& r) {
    Gemm gemm = make(r);
    gemm.product.tf32 = tf32;
    return gemm;
  };
  return {.name = with_leeway(std::string("cublas_lt_") + kind, leeway), .op = kind, .supports = [=](const KernelRequest& r) { return support(r, leeway, make); },
          .prepare = [=](const KernelRequest& r) { return prepare_product(*toolkit, r, made(r)); },
          .members = std::move(members), .halves = true,
          .engines = [=](const KernelRequest& r) {
            const Gemm gemm = made(r);
            return gemm.parts.size() == 1 ? cublas_lt::algorithm_names(*toolkit, gemm.product) : std::vector<std::string>{};
          },
          .leeway = leeway};
}

}  // namespace

/// cuBLASLt's gelu is the one by tanh; its relu makes 0 of a NaN, and so hides a net that has diverged. What it keeps for the gradients of its epilogues (a mask of bits) is no value of ours.
std::vector<Kernel> matmul_cuda(const std::shared_ptr<CudaToolkit>& toolkit) {
  std::vector<Kernel> out;
  for (bool tf32 : {true, false}) {
    out.push_back(kernel(toolkit, "matmul", {}, gemm_of, tf32));
    out.push_back(kernel(toolkit, kMatmulBias, {"matmul", "add"}, [](const KernelRequest& r) { return biased_gemm_of(r, Epilogue::bias); }, tf32));
    out.push_back(kernel(toolkit, kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}, [](const KernelRequest& r) { return biased_gemm_of(r, Epilogue::bias_gelu_tanh); }, tf32));
  }
  return out;
}

}  // namespace belfry
