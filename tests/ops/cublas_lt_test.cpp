// What cuBLASLt is told of contractions and of what ends them, computed on the host beside the references.
#include <gtest/gtest.h>

#include <tuple>

#include <belfry/ops/fusions.h>
#include <belfry/ops/cuda/gemm_internal.h>

#include "cudnn_on_host.h"
#include "kernel_case.h"

namespace belfry::test {
namespace {

TEST(CublasLt, MultipliesContractions) {
  struct Case {
    const char* equation;
    Shape a, b;
    std::size_t parts;
    std::int64_t batch;
  };
  const Case cases[] = {{"", {kBatch, 4}, {4, 3}, 1, 1},
                        {"", {kBatch, 2, 4}, {4, 3}, 1, 1},
                        {"", {kBatch, 2, 4}, {kBatch, 4, 3}, 1, 5},
                        {"bk,bn->kn", {kBatch, 4}, {kBatch, 3}, 1, 1},
                        {"mk,nk->mn", {kBatch, 4}, {3, 4}, 1, 1},
                        {"mk,kn->nm", {kBatch, 4}, {4, 3}, 1, 1},
                        {"bsk,bsn->kn", {kBatch, 2, 4}, {kBatch, 2, 3}, 1, 1},
                        {"bqhd,bkhd->bhqk", {kBatch, 6, 2, 4}, {kBatch, 7, 2, 4}, 2, 5},
                        {"bhqk,bkhd->bqhd", {kBatch, 2, 6, 7}, {kBatch, 7, 2, 4}, 2, 5},
                        {"asb,sdb->ad", {3, 2, 4}, {2, 5, 4}, 2, 1},
                        {"k,kn->n", {4}, {4, 3}, 1, 1},
                        {"mk,k->m", {3, 4}, {4}, 1, 1},
                        {"k,k->", {4}, {4}, 1, 1},
                        {"m,n->mn", {3}, {4}, 1, 1},
                        {"bm,bm->bm", {kBatch, 4}, {kBatch, 4}, 1, 20},
                        {"nk,k->n", {1, 4}, {4}, 1, 1},
                        {"mk,kn->nm", {1, 4}, {4, 3}, 1, 1}};
  for (const Case& c : cases) {
    Asked a({"", "matmul", {real(c.a), real(c.b)}, {{"equation", c.equation}}});
    Gemm g = gemm_of(a.request);
    ASSERT_EQ(g.refusal, "") << c.equation;
    EXPECT_EQ(g.parts.size(), c.parts) << c.equation;
    EXPECT_EQ(g.product.batch, c.batch) << c.equation;
    HostTensor y(f32, a.request.outputs[0].shape);
    for (const Gemm::Part& p : g.parts) {
      g.product.accumulate = p.add;
      multiply_on_host(g.product, a.inputs[0].data<float>().data() + p.a, a.inputs[1].data<float>().data() + p.b, y.data<float>().data() + p.y);
    }
    EXPECT_LT(distance(y, by_reference(a.request, a.inputs)[0]), 1e-5) << c.equation;
  }
}

/// What follows a(…, k)·b(k, n) + bias, as it is asked for.
struct BiasedProduct {
  explicit BiasedProduct(Value (*then)(Value), DType t = f32, const char* equation = "", const Shape& a = {kBatch, 2, 4}, const Shape& b = {4, 3}, const Shape& row = {3}) : builder("product") {
    Value x = builder.input("a", t, a), w = builder.input("b", t, b), bias = builder.input("bias", t, row);
    Value y = *equation ? contract(equation, x, w) : matmul(x, w);
    then(bias + y);
    FusionGroup group = find_gpu_groups(builder.graph()).at(0);
    request.op = group.kind;
    request.attributes = &attributes;
    for (Value v : {x, w, bias}) request.inputs.push_back({t, extents_of(v.shape(), kRows)});
    for (std::size_t i = 0; i < 3; ++i) inputs.push_back(drawn(request.inputs[i], 4, false, i));
    request.outputs = {{t, extents_of(y.shape(), kRows)}};
    describe_members(builder.graph(), group.members, request);
  }
  HostTensor by(const char* kernel) {
    HostTensor y(f32, request.outputs[0].shape);
    KernelTable().prepare(kernel, request)->launch({{inputs[0].raw(), inputs[1].raw(), inputs[2].raw()}, {y.raw()}});
    return y;
  }
  Builder builder;
  Attributes attributes;
  KernelRequest request;
  std::vector<HostTensor> inputs;
};

Value as_it_is(Value y) { return y; }
Value smooth(Value y) { return gelu(y, true); }

TEST(CublasLt, EndsAProductByItsBiasAndWhatFollows) {
  using cublas_lt::Epilogue;
  for (auto [then, kind, epilogue] : {std::tuple{&as_it_is, kMatmulBias, Epilogue::bias}, {&smooth, kMatmulBiasGeluTanh, Epilogue::bias_gelu_tanh}}) {
    for (const auto& [equation, a, b, row] : {std::tuple{"", Shape{kBatch, 2, 4}, Shape{4, 3}, Shape{3}}, {"bk,nk->bn", {kBatch, 4}, {3, 4}, {3}}, {"", {2, kBatch, 4}, {2, 4, 3}, {3}},
                                               {"bti,ihk->bthk", {kBatch, 2, 4}, {4, 3, 2}, {3, 2}}, {"bti,hki->bthk", {kBatch, 2, 4}, {3, 2, 4}, {3, 2}}}) {
      BiasedProduct g(then, f32, equation, a, b, row);
      ASSERT_EQ(g.request.op, kind);
      Gemm gemm = biased_gemm_of(g.request, epilogue);
      ASSERT_EQ(gemm.refusal, "");
      HostTensor y(f32, g.request.outputs[0].shape);
      multiply_on_host(gemm.product, g.inputs[0].data<float>().data(), g.inputs[1].data<float>().data(), y.data<float>().data(), g.inputs[2].data<float>().data());
      EXPECT_LT(distance(y, g.by(kReferenceKernel)), 1e-5) << kind;
    }
  }
  EXPECT_EQ(biased_gemm_of(BiasedProduct(as_it_is, f32, "mk,kn->nm", {5, 4}, {4, 3}, {5}).request, Epilogue::bias).refusal, "its bias does not lie along the columns of one product");
  EXPECT_EQ(biased_gemm_of(BiasedProduct(as_it_is, f32, "bti,ihk->bthk", {kBatch, 2, 4}, {4, 3, 2}, {2}).request, Epilogue::bias).refusal, "its bias does not lie along the columns of one product");
  EXPECT_EQ(biased_gemm_of(BiasedProduct(as_it_is, f64).request, Epilogue::bias).refusal, "cuBLASLt has no epilogues in f64");
}

TEST(CublasLt, RefusesAxesThatLieApart) {
  EXPECT_EQ(gemm_of(Asked({"", "matmul", {real({3, 4, 2}), real({4, 5, 2})}, {{"equation", "mkb,knb->mnb"}}}).request).refusal,
            "a matrix has neither its rows nor its columns side by side; transpose an operand");
  EXPECT_EQ(gemm_of(Asked({"", "matmul", {real({99, 2, 98, 4}), real({98, 3, 99, 4})}, {{"equation", "aibk,bjak->aibj"}}}).request).refusal, "its axes lie apart in 98 products; transpose an operand");
}

}  // namespace
}  // namespace belfry::test
