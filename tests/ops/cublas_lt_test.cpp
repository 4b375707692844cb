// What cuBLASLt is told of contractions and of what ends them, computed on the host beside the references.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include <belfry/ops/cpu_kernels.h>
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
    describe_members(builder.graph(), group, request);
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

TEST(CublasLt, AddsProductsUp) {
  struct Sum {
    const char* what;
    std::function<Value(Value x, Value a, Value c, Value w, Value v, Value bias)> make;
    std::size_t products;
    bool other;
  };
  const std::vector<Sum> all = {{"a residual", [](Value x, Value a, Value, Value w, Value, Value bias) { return x + (matmul(a, w) + bias); }, 1, true},
                                {"products alone", [](Value, Value a, Value c, Value w, Value v, Value bias) { return add_n({matmul(c, v), matmul(a, w) + bias, contract("btk,nk->btn", c, transpose(v, {1, 0}))}); }, 3, false},
                                {"products and another", [](Value x, Value a, Value c, Value w, Value v, Value) { return add_n({matmul(a, w), x, matmul(c, v)}); }, 2, true}};
  for (const Sum& s : all) {
    Builder b("sum");
    const std::vector<Value> in = {b.input("x", f32, {kBatch, 2, 3}), b.input("a", f32, {kBatch, 2, 4}), b.input("c", f32, {kBatch, 2, 5}), b.input("w", f32, {4, 3}), b.input("v", f32, {5, 3}), b.input("bias", f32, {3})};
    const Value y = s.make(in[0], in[1], in[2], in[3], in[4], in[5]);
    b.output(y);
    const FusionGroup group = find_gpu_groups(b.graph()).at(0);
    ASSERT_EQ(group.kind, kMatmulAdd) << s.what;
    KernelRequest r;
    const Attributes attributes;
    r.op = group.kind, r.attributes = &attributes;
    describe_members(b.graph(), group, r);
    std::vector<HostTensor> inputs;
    Arguments arguments;
    for (std::size_t m = 0; m < r.members.size(); ++m)
      for (std::size_t i = 0; i < r.inner[m].size(); ++i)
        if (r.inner[m][i].empty()) r.inputs.push_back(local_type(b.graph().type(r.members[m]->inputs[i]), kRows)), inputs.push_back(drawn(r.inputs.back(), 4, false, inputs.size()));
    for (const HostTensor& x : inputs) arguments.inputs.push_back(x.raw());
    r.outputs = {local_type(y.type(), kRows)};
    const GemmSum sum = gemm_sum_of(r);
    ASSERT_EQ(sum.refusal, "") << s.what;
    EXPECT_EQ(sum.terms.size(), s.products) << s.what;
    EXPECT_EQ(sum.other >= 0, s.other) << s.what;
    HostTensor wanted(f32, r.outputs[0].shape), got = sum.other < 0 ? drawn(r.outputs[0], 4, false, 9) : inputs[static_cast<std::size_t>(sum.other)];
    arguments.outputs = {wanted.raw()};
    KernelTable().prepare(kReferenceKernel, r)->launch(arguments);
    for (const GemmSum::Term& t : sum.terms) {
      ASSERT_EQ(t.gemm.parts.size(), 1u) << s.what;
      auto at = [&](std::ptrdiff_t i) { return i < 0 ? nullptr : inputs[static_cast<std::size_t>(i)].data<float>().data(); };
      multiply_on_host(t.gemm.product, at(static_cast<std::ptrdiff_t>(t.a)), at(static_cast<std::ptrdiff_t>(t.a) + 1), got.data<float>().data(), at(t.bias));
    }
    EXPECT_LT(distance(got, wanted), 1e-5) << s.what;
    r.inner.back().back() = "nobody";
    EXPECT_EQ(gemm_sum_of(r).refusal, "its members are not products and their sum, of one type") << s.what;
  }
}

/// conv2d(x, filter) + bias, where nothing or a relu follows.
std::vector<FusionGroup> groups_of_convolution(Builder& b, std::int64_t window, Integers strides, bool then_relu) {
  const Value x = b.input("x", f32, {kBatch, 3, 4, 5}), w = b.input("w", f32, {window, window, 5, 6}), bias = b.input("b", f32, {6});
  const Value y = conv2d(x, w, {.strides = std::move(strides)}) + bias;
  b.output(then_relu ? relu(y) : reduce_max(y, {.axes = {1, 2}}));
  return find_gpu_groups(b.graph());
}

TEST(CublasLt, EndsAConvolutionOfOneTapByItsBias) {
  if (!cublas_lt::built()) GTEST_SKIP() << "Belfry was built without cuBLASLt's header";
  Builder b("net");
  const std::vector<FusionGroup> groups = groups_of_convolution(b, 1, {1, 1}, false);
  ASSERT_EQ(groups.size(), 1u);
  ASSERT_EQ(groups[0].kind, kConv2dBias);
  KernelRequest r;
  const Attributes attributes;
  r.op = kConv2dBias;
  r.attributes = &attributes;
  std::vector<HostTensor> inputs;
  for (const Extents& shape : {Extents{kRows, 3, 4, 5}, {1, 1, 5, 6}, {6}}) r.inputs.push_back({f32, shape}), inputs.push_back(drawn(r.inputs.back(), 4, false, inputs.size()));
  r.outputs = {{f32, {kRows, 3, 4, 6}}};
  describe_members(b.graph(), groups[0], r);
  HostTensor by_members(f32, r.outputs[0].shape), y = by_members;
  KernelTable().prepare(kReferenceKernel, r)->launch({{inputs[0].raw(), inputs[1].raw(), inputs[2].raw()}, {by_members.raw()}});
  const cudnn::Sequence sequence = sequence_of(r);
  ASSERT_EQ(sequence.refusal, "");
  run_on_host(sequence, {{inputs[0].raw(), inputs[1].raw(), inputs[2].raw()}, {y.raw()}});
  EXPECT_LT(distance(y, by_members), 1e-5);
  r.inputs[2].dtype = bf16;
  EXPECT_EQ(sequence_of(r).refusal, "its bias is of another dtype or shape than a pixel of its result");
}

/// A residual on either side, of one tap.
TEST(CublasLt, AddsAnotherValueToAConvolutionOfOneTapWithItsBias) {
  for (DType t : {f32, bf16})
    for (bool first : {false, true}) {
      Builder b("net");
      const Value x = b.input("x", t, {kBatch, 3, 4, 5}), w = b.input("w", t, {1, 1, 5, 6}), bias = b.input("b", t, {6}), other = b.input("other", t, {kBatch, 3, 4, 6});
      const Value made = conv2d(x, w) + bias, y = first ? other + made : made + other;
      b.output(y);
      const std::vector<FusionGroup> groups = find_gpu_groups(b.graph());
      ASSERT_EQ(groups.size(), 1u);
      ASSERT_EQ(groups[0].kind, kConv2dBiasAdd);
      KernelRequest r;
      const Attributes attributes;
      r.op = kConv2dBiasAdd, r.attributes = &attributes, r.wanted = {true}, r.output_types = {y.type()};
      std::vector<HostTensor> inputs;
      Arguments arguments;
      for (Value v : {x, w, bias, other}) r.inputs.push_back(local_type(v.type(), kRows)), inputs.push_back(converted(drawn({f32, r.inputs.back().shape}, 4, false, inputs.size()), t));
      for (const HostTensor& i : inputs) arguments.inputs.push_back(i.raw());
      r.outputs = {local_type(y.type(), kRows)};
      describe_members(b.graph(), groups[0], r);
      HostTensor wanted(t, r.outputs[0].shape), got = wanted;
      arguments.outputs = {wanted.raw()};
      KernelTable().prepare(kReferenceKernel, r)->launch(arguments);
      const KernelTable table = cpu_kernels();
      const auto choice = table.choose(r);
      EXPECT_EQ(choice.name, "members_in_turn");
      HostTensor scratch(u8, {choice.support.scratch_bytes});
      arguments.outputs = {got.raw()}, arguments.scratch = scratch.raw();
      table.prepare(choice.name, r, {choice.support.scratch_bytes, false})->launch(arguments);
      EXPECT_LE(distance(got, wanted), t == bf16 ? 0x1p-6 : 1e-6);
      if (!cublas_lt::built()) continue;
      const cudnn::Sequence sequence = sequence_of(r);
      ASSERT_EQ(sequence.refusal, "");
      EXPECT_TRUE(std::get<cudnn::Multiply>(sequence.steps.at(0)).product.accumulate);
      if (t == f32) {
        run_on_host(sequence, arguments);
        EXPECT_LT(distance(got, wanted), 1e-5);
      }
      std::swap(r.inputs[2], r.inputs[3]);
      EXPECT_EQ(sequence_of(r).refusal, "its bias is of another dtype or shape than a pixel of its result");
      std::swap(r.inputs[2], r.inputs[3]);
      r.inputs[3].dtype = f64;
      EXPECT_EQ(sequence_of(r).refusal, "what is added to it is of another dtype or shape");
      r.inputs.pop_back();
      EXPECT_EQ(sequence_of(r).refusal, "what is added to it is of another dtype or shape");
    }
}

TEST(CublasLt, AddsNothingToAConvolutionWhereThatSavesNoPass) {
  auto kinds = [](const std::function<void(Builder& b, Value made, Value other)>& more, std::int64_t window = 1) {
    Builder b("net");
    const Value x = b.input("x", f32, {kBatch, 3, 4, 6}), made = conv2d(x, b.input("w", f32, {window, window, 6, 6}), {.padding = "same"}) + b.input("b", f32, {6});
    more(b, made, b.input("other", f32, {kBatch, 3, 4, 6}));
    const std::vector<FusionGroup> groups = find_gpu_groups(b.graph());
    return std::count_if(groups.begin(), groups.end(), [](const FusionGroup& group) { return group.kind == kConv2dBiasAdd; });
  };
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) { b.output(made + other); }), 1);
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) { b.output(made + other); }, 3), 0) << "cuDNN's";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) { b.output(relu(made + other)); }), 0) << "a tree reads the product in its pass";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) { b.output(made + other), b.output(reduce_max(made, {.axes = {1, 2}})); }), 0) << "others read what it is added to";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) { b.output(made + other), b.output(made); }), 0) << "somebody asks for it";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value) { b.output(made + made); }), 0) << "it is added to itself";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value) { b.output(made + b.input("row", f32, {6})); }), 0) << "another row";
  EXPECT_EQ(kinds([](Builder& b, Value made, Value other) {
              auto on = b.device("gpu:1");
              b.output(made + other);
            }),
            0)
      << "on two devices";
}

/// A tree adds the bias before a relu in the same pass.
TEST(CublasLt, LeavesOtherConvolutionsAlone) {
  for (const auto& [window, strides, then_relu] : {std::tuple{3, Integers{1, 1}, false}, {1, Integers{2, 2}, false}, {1, Integers{1, 1}, true}}) {
    Builder b("net");
    for (const FusionGroup& group : groups_of_convolution(b, window, strides, then_relu)) EXPECT_EQ(group.kind, kElementwise);
  }
}

TEST(CublasLt, RefusesAxesThatLieApart) {
  EXPECT_EQ(gemm_of(Asked({"", "matmul", {real({3, 4, 2}), real({4, 5, 2})}, {{"equation", "mkb,knb->mnb"}}}).request).refusal,
            "a matrix has neither its rows nor its columns side by side; transpose an operand");
  EXPECT_EQ(gemm_of(Asked({"", "matmul", {real({99, 2, 98, 4}), real({98, 3, 99, 4})}, {{"equation", "aibk,bjak->aibj"}}}).request).refusal, "its axes lie apart in 98 products; transpose an operand");
}

}  // namespace
}  // namespace belfry::test
