#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/cuda/gemm_internal.h>
#include <belfry/ops/matmul/matmul.h>
#include <belfry/ops/matmul/roles_internal.h>
#include <belfry/ops/member_kernels_internal.h>

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

/// The product of a node of a group, whose operands are the group's inputs from `a` on.
KernelRequest product_of(const KernelRequest& r, const Node& node, std::size_t a) {
  KernelRequest out = r;
  out.attributes = &node.attributes;
  out.inputs = {r.inputs[a], r.inputs[a + 1]};
  return out;
}

/// Which ends as said, if its bias allows.
Gemm with_bias(Gemm gemm, const LocalType& bias, const LocalType& y, Epilogue epilogue) {
  if (!gemm.refusal.empty()) return gemm;
  if (y.dtype == f64) return refused("cuBLASLt has no epilogues in f64");
  if (bias.dtype != y.dtype) return refused("its bias is of another dtype than its result");
  if (gemm.parts.size() > 1) return refused("it is more than one product");
  const bool last = bias.shape.size() <= y.shape.size() && std::equal(bias.shape.rbegin(), bias.shape.rend(), y.shape.rbegin());
  const bool along = last && gemm.product.n == bias.elements() && gemm.product.y.column_step == 1;
  if (!along || cublas_lt::column_major(gemm.product).swapped) return refused("its bias does not lie along the columns of one product");
  gemm.product.epilogue = epilogue;
  return gemm;
}

}  // namespace

Gemm biased_gemm_of(const KernelRequest& r, Epilogue epilogue) { return with_bias(gemm_of(product_of(r, *r.members[0], 0)), r.inputs[2], r.outputs[0], epilogue); }

namespace {

GemmSum no_sum(std::string why) {
  GemmSum out;
  out.refusal = std::move(why);
  return out;
}

}  // namespace

GemmSum gemm_sum_of(const KernelRequest& r) {
  GemmSum out;
  const std::optional<ProductSum> sum = product_sum_of(r);
  if (!sum) return no_sum("its members are not products and their sum, of one type");
  out.other = sum->other;
  for (const ProductSum::Product& p : sum->products) {
    Gemm gemm = gemm_of(product_of(r, *p.node, p.a));
    if (p.bias >= 0) gemm = with_bias(std::move(gemm), r.inputs[static_cast<std::size_t>(p.bias)], r.outputs[0], Epilogue::bias);
    if (!gemm.refusal.empty()) return no_sum(std::move(gemm.refusal));
    gemm.product.accumulate = !out.terms.empty() || out.other >= 0;
    out.terms.push_back({std::move(gemm), p.a, p.bias});
  }
  return out;
}

namespace {

using Made = std::function<GemmSum(const KernelRequest&)>;

/// One product that is added to nothing, with a bias where it ends in one.
GemmSum alone(Gemm gemm) {
  if (!gemm.refusal.empty()) return no_sum(std::move(gemm.refusal));
  const std::ptrdiff_t bias = gemm.product.epilogue == Epilogue::none ? -1 : 2;
  GemmSum out;
  out.terms.push_back({std::move(gemm), 0, bias});
  return out;
}

/// The products that `make` makes of a request, with the leeway.
Support support(const KernelRequest& r, const Leeway& leeway, const Made& make) {
  if (!cublas_lt::built()) return refuse("Belfry was built without cuBLASLt's header");
  if (!is_float(r.inputs[0].dtype) && !is_half(r.inputs[0].dtype)) return refuse(fmt::format("input 0 is {}", name_of(r.inputs[0].dtype)));
  if (std::any_of(r.inputs.begin(), r.inputs.end(), [](const LocalType& t) { return t.elements() == 0; })) return refuse("there are no elements");
  const GemmSum sum = make(r);
  if (!sum.refusal.empty()) return refuse(sum.refusal);
  if (leeway.tf32 && std::any_of(sum.terms.begin(), sum.terms.end(), [&](const GemmSum::Term& t) { return r.inputs[t.a].dtype != f32; })) return refuse("it multiplies no f32");
  return {true, {}, cublas_lt::kScratchBytes, false};
}

bool is_one_launch_each(const GemmSum& sum) {
  return std::all_of(sum.terms.begin(), sum.terms.end(), [](const GemmSum::Term& t) { return t.gemm.parts.size() == 1; });
}

/// A term as it is launched: its parts, those that begin an element of y and those that add to it.
struct Launch {
  GemmSum::Term term;
  std::int64_t bytes = 0;  // of an element of a and b
  std::shared_ptr<cublas_lt::Multiplication> first, adding;
};

std::unique_ptr<Prepared> prepare_products(CudaToolkit& toolkit, const KernelRequest& r, const GemmSum& sum) {
  if (!r.engine.empty() && !is_one_launch_each(sum)) throw UserError(fmt::format("[{}] the plan names the algorithm {}, but here it is more than one product; derive the plan anew with belfry place", r.op, r.engine));
  std::vector<Launch> launches;
  for (const GemmSum::Term& t : sum.terms) {
    Launch l{t, static_cast<std::int64_t>(size_of(r.inputs[t.a].dtype)), cublas_lt::multiplication(toolkit, t.gemm.product, r.engine), nullptr};
    if (std::any_of(t.gemm.parts.begin(), t.gemm.parts.end(), [](const Gemm::Part& p) { return p.add; })) {
      l.term.gemm.product.accumulate = true;
      l.adding = cublas_lt::multiplication(toolkit, l.term.gemm.product);
    }
    launches.push_back(std::move(l));
  }
  const auto of_y = static_cast<std::int64_t>(size_of(r.outputs[0].dtype));
  return prepared([launches = std::move(launches), of_y, other = sum.other](const Arguments& x) {
    const std::byte* added = other < 0 ? nullptr : x.inputs[static_cast<std::size_t>(other)];
    for (const Launch& l : launches) {
      const std::byte *a = x.inputs[l.term.a], *b = x.inputs[l.term.a + 1], *bias = l.term.bias < 0 ? nullptr : x.inputs[static_cast<std::size_t>(l.term.bias)];
      for (const Gemm::Part& p : l.term.gemm.parts)
        (p.add ? l.adding : l.first)->run(a + p.a * l.bytes, b + p.b * l.bytes, x.outputs[0] + p.y * of_y, x.scratch, x.stream, bias, added && !p.add ? added + p.y * of_y : nullptr);
      added = nullptr;
    }
  });
}

/// Algorithms that all products have.
std::vector<std::string> common_algorithms(CudaToolkit& toolkit, const GemmSum& sum) {
  std::vector<std::string> out = cublas_lt::algorithm_names(toolkit, sum.terms[0].gemm.product);
  for (std::size_t t = 1; t < sum.terms.size(); ++t) {
    const std::vector<std::string> names = cublas_lt::algorithm_names(toolkit, sum.terms[t].gemm.product);
    std::erase_if(out, [&](const std::string& name) { return std::find(names.begin(), names.end(), name) == names.end(); });
  }
  return out;
}

/// Its products repeat their bits whatever is left to them.
Kernel kernel(const std::shared_ptr<CudaToolkit>& toolkit, const char* kind, std::vector<std::string> members, const Made& make, bool tf32) {
  const Leeway leeway{.tf32 = tf32};
  auto made = [=](const KernelRequest& r) {
    GemmSum sum = make(r);
    for (GemmSum::Term& t : sum.terms) t.gemm.product.tf32 = tf32;
    return sum;
  };
  return {.name = with_leeway(std::string("cublas_lt_") + kind, leeway), .op = kind, .supports = [=](const KernelRequest& r) { return support(r, leeway, make); },
          .prepare = [=](const KernelRequest& r) { return prepare_products(*toolkit, r, made(r)); },
          .members = std::move(members), .halves = true,
          .engines = [=](const KernelRequest& r) {
            const GemmSum sum = made(r);
            return is_one_launch_each(sum) ? common_algorithms(*toolkit, sum) : std::vector<std::string>{};
          },
          .leeway = leeway};
}

}  // namespace

/// cuBLASLt's gelu is the one by tanh; its relu makes 0 of a NaN, and so hides a net that has diverged. What it keeps for the gradients of its epilogues (a mask of bits) is no value of ours.
std::vector<Kernel> matmul_cuda(const std::shared_ptr<CudaToolkit>& toolkit) {
  std::vector<Kernel> out;
  for (bool tf32 : {true, false}) {
    out.push_back(kernel(toolkit, "matmul", {}, [](const KernelRequest& r) { return alone(gemm_of(r)); }, tf32));
    out.push_back(kernel(toolkit, kMatmulAdd, {}, gemm_sum_of, tf32));
    out.push_back(kernel(toolkit, kMatmulBias, {"matmul", "add"}, [](const KernelRequest& r) { return alone(biased_gemm_of(r, Epilogue::bias)); }, tf32));
    out.push_back(kernel(toolkit, kMatmulBiasGeluTanh, {"matmul", "add", "gelu_tanh"}, [](const KernelRequest& r) { return alone(biased_gemm_of(r, Epilogue::bias_gelu_tanh)); }, tf32));
  }
  return out;
}

}  // namespace belfry
