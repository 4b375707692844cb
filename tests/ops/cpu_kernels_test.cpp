#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <omp.h>

#include <barrier>
#include <set>
#include <thread>

#include <belfry/ops/cpu_kernels.h>

#include "kernel_case.h"
#include "says.h"

namespace belfry::test {
namespace {

using testing::HasSubstr;

void expect_as_reference(const KernelCase& c) {
  KernelTable table = cpu_kernels();
  std::vector<std::vector<HostTensor>> by_threads;
  for (int threads : {1, 2}) {
    Asked a(c, threads);
    std::vector<std::string> reasons;
    auto choice = table.choose(a.request, &reasons);
    ASSERT_EQ(choice.name, c.kernel) << testing::PrintToString(reasons);
    auto kernel = table.prepare(choice.name, a.request, {choice.support.scratch_bytes, false});
    auto got = launched(*kernel, a, choice.support.scratch_bytes), wanted = launched(*table.prepare(kReferenceKernel, a.request), a, 0);
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_LE(distance(got[k], wanted[k]), c.tolerance) << "output " << k << ", " << threads << " threads";
      EXPECT_TRUE(c.tolerance > 0 || got[k] == wanted[k]) << "output " << k << ", " << threads << " threads, has other bits";
    }
    EXPECT_TRUE(launched(*kernel, a, choice.support.scratch_bytes) == got) << "a second launch differs";
    if (choice.support.in_place)
      for (auto pair : a.request.def->in_place)
        if (a.request.inputs[static_cast<std::size_t>(pair.second)].bytes() == a.request.outputs[static_cast<std::size_t>(pair.first)].bytes()) {
          EXPECT_TRUE(launched(*kernel, a, choice.support.scratch_bytes, pair) == got) << "in place of input " << pair.second;
        }
    by_threads.push_back(std::move(got));
  }
  EXPECT_TRUE(c.kernel.starts_with("onednn") || by_threads[0] == by_threads[1]) << "the number of threads changes bits";
}

const std::vector<KernelCase>& cases() {
  static const std::vector<KernelCase> all = [] {
    std::vector<KernelCase> out;
    const Dim B = kBatch;
    auto add = [&](KernelCase c) { out.push_back(std::move(c)); };
    for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "squared_difference"}) {
      for (auto [a, b] : {std::pair<Shape, Shape>{{B, 7}, {B, 7}}, {{B, 7}, {}}, {{}, {B, 7}}, {{B, 3, 7}, {7}}, {{B, 3, 7}, {3, 1}}, {{7}, {B, 3, 7}}, {{B, 1, 7}, {1, 3, 1}}, {{1, 1}, {1}}, {{200, 400}, {400}}, {{90001}, {90001}}})
        add({"simd_binary", op, {real(a), real(b)}});
      add({"simd_binary", op, {{f64, {B, 7}}, {f64, {7}}}});
      if (std::string(op) != "div") add({"simd_binary", op, {whole({B, 7}), whole({7})}});
    }
    add({"simd_binary", "sigmoid_cross_entropy", {real({B, 3, 7}), real({7})}, {}, 1e-6});
    add({"simd_binary", "pow", {real({B, 3, 7}), real({7})}, {}, 1e-6});
    for (const char* op : {"logical_and", "logical_or"}) add({"simd_compare", op, {{boolean, {B, 7}}, {boolean, {7}}}});
    for (Shape s : {Shape{B, 7}, Shape{}, Shape{70001}}) add({"simd_compare", "logical_not", {{boolean, s}}});
    for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
      add({"simd_compare", op, {real({B, 7}), real({7})}});
      add({"simd_compare", op, {whole({B, 7}), whole({B, 7})}});
    }
    add({"simd_where", "where", {{boolean, {B, 7}}, real({B, 7}), real({})}});
    add({"simd_where", "where", {{boolean, {B, 1}}, real({7}), real({B, 7})}});
    for (const char* op : {"neg",  "abs", "sign", "square", "floor",   "ceil",     "round", "exp",  "log",       "log1p", "sqrt",  "rsqrt",     "reciprocal",
                           "sin",  "cos", "erf",  "tanh",   "sigmoid", "softplus", "silu",  "gelu", "gelu_tanh", "relu",  "relu6", "leaky_relu", "elu"})
      for (const Shape& s : {Shape{B, 13}, Shape{}, Shape{70001}}) add({"simd_unary", op, {real(s)}});
    const Attributes bounds = {{"min", -0.5}, {"max", 1.0}};
    add({"simd_unary", "clip", {real({B, 13})}, bounds});
    add({"simd_unary", "clip_gradient", {real({B, 13}), real({B, 13})}, bounds});
    for (const char* op : {"relu_gradient", "relu6_gradient", "leaky_relu_gradient", "elu_gradient", "gelu_gradient"}) add({"simd_unary", op, {real({B, 13}), real({B, 13})}});
    for (DType to : kAllDTypes) add({"simd_cast", "cast", {real({B, 13})}, {{"dtype", to}}});
    add({"simd_cast", "cast", {whole({B, 13})}, {{"dtype", f32}}});
    for (DType half : {f16, bf16}) add({"simd_cast", "cast", {{half, {B, 13}}}, {{"dtype", f32}}});
    for (int n : {1, 2, 5}) add({"simd_add_n", "add_n", std::vector<TensorType>(static_cast<std::size_t>(n), real({B, 733}))});
    add({"simd_add_n", "add_n", {whole({B}), whole({B})}});
    add({"stretch", "broadcast_like", {real({7}), real({B, 3, 7})}});
    add({"stretch", "broadcast_like", {real({B, 1, 1}), real({B, 3, 7})}});
    add({"stretch", "broadcast_like", {whole({}), whole({B, 3})}});
    add({"strided_transpose", "transpose", {real({B, 3, 4, 6})}, {{"order", Integers{0, 2, 1, 3}}}});
    add({"strided_transpose", "transpose", {real({B, 3, 4, 6})}, {{"order", Integers{3, 1, 0, -2}}}});
    add({"strided_transpose", "transpose", {{u8, {B, 1, 4}}}, {{"order", Integers{2, 1, 0}}}});
    add({"copy_bytes", "identity", {real({B, 13})}});
    add({"copy_bytes", "batch_statistic", {real({13}), real({13})}});
    add({"copy_bytes", "reshape", {real({B, 6, 2})}, {{"shape", Shape{B, 12}}}});
    for (Integers axes : {Integers{}, Integers{0}, Integers{-1}, Integers{0, 1}, Integers{1}}) {
      for (bool keep : {false, true})
        for (const char* op : {"sum", "mean", "max"})
          add({std::string("block_reduce_") + op, std::string("reduce_") + op, {real({B, 11, 9})}, {{"axes", axes}, {"keep", keep}}, std::string(op) == "max" ? 0 : 1e-6});
    }
    add({"block_reduce_sum", "reduce_sum", {real({300, 67, 33})}, {{"axes", Integers{0, 1}}}, 1e-6});
    add({"block_reduce_sum", "reduce_sum", {real({100003})}, {}, 1e-6});
    for (const char* op : {"reduce_any", "reduce_all"}) {
      add({"block_" + std::string(op), op, {{boolean, {B, 3, 9}}}, {{"axes", Integers{1}}}});
      add({"block_" + std::string(op), op, {{boolean, {3, 2}}}, {{"axes", Integers{1}}}});
      add({"block_" + std::string(op), op, {{boolean, {70001}}}});
    }
    add({"block_reduce_min", "reduce_min", {real({B, 3, 9})}, {{"axes", Integers{1}}}});
    add({"block_reduce_min", "reduce_min", {whole({B, 9})}, {{"axes", Integers{1}}}});
    for (Integers axes : {Integers{1}, Integers{0, 1}, Integers{2}, Integers{}}) add({"row_logsumexp", "reduce_logsumexp", {real({B, 3, 9})}, {{"axes", axes}}, 1e-6});
    add({"block_reduce_sum", "reduce_sum", {real({2, 50000})}, {{"axes", Integers{1}}}, 1e-6});
    add({"block_reduce_sum", "reduce_sum", {real({1, B, 1, 9})}, {{"axes", Integers{0, 1, 2}}}, 1e-6});
    add({"reference", "reduce_sum", {real({B, 3, 9})}, {{"axes", Integers{0, 2}}}});
    for (const char* op : {"softmax", "log_softmax"}) {
      add({"row_softmax", op, {real({B, 10})}, {}, 1e-6});
      add({"row_softmax", op, {real({B, 10, 3})}, {{"axis", 1}}, 1e-6});
      add({"row_softmax", op, {real({500, 1})}, {}, 1e-6});
      add({"row_softmax", op, {real({500, 101})}, {}, 1e-6});
    }
    add({"row_cross_entropy", "softmax_cross_entropy", {real({B, 10}), real({B, 10})}, {}, 1e-6});
    for (DType t : {i32, i64, u8}) add({"row_cross_entropy", "sparse_softmax_cross_entropy", {real({B, 3, 10}), {t, {B, 3}}}, {}, 1e-6});
    add({"row_argmax", "argmax", {real({B, 10})}});
    add({"row_argmax", "argmax", {whole({B, 10, 3})}, {{"axis", 1}}});
    for (DType t : {i32, i64, u8}) add({"set_one_hot", "one_hot", {{t, {B, 2}}}, {{"depth", Shape{3}}}});
    add({"copy_rows", "gather", {real({4, 3, 2}), whole({B, 2})}});
    add({"copy_rows", "gather", {{u8, {4}}, {i64, {B}}}});
    auto part = [](Shape begin, Shape size, Integers strides = {}) { return Attributes{{"begin", std::move(begin)}, {"size", std::move(size)}, {"strides", std::move(strides)}}; };
    add({"strided_slice", "slice", {real({B, 40, 9})}, part({0, 3, 1}, {B, 12, 7}, {1, 3, -1})});
    add({"strided_fill", "slice_gradient", {real({B, 12, 7}), real({B, 40, 9})}, part({0, 3, 1}, {B, 12, 7}, {1, 3, -1})});
    for (const Integers& strides : {Integers{}, Integers{-2, 1}, Integers{3, -1}})  // into the tower's own rows
      add({"strided_fill", "slice_gradient", {real({6, 2}), real({B, 2})}, part({1, 0}, {6, 2}, strides)});
    add({"row_argmin", "argmin", {whole({B, 10, 3})}, {{"axis", 1}, {"last", true}}});
    add({"stretch", "broadcast_to", {real({B, 1, 7})}, {{"shape", Shape{B, 300, 7}}}});
    add({"add_to_rows", "scatter_add", {real({4, 30}), whole({B, 3}), real({B, 3, 30})}});
    add({"add_to_rows", "scatter_add", {real({400, 90}), whole({300}), real({300, 90})}, {}, 0, 400});
    add({"take_elements", "take_along_axis", {real({B, 9, 6}), whole({B, 30, 6})}, {{"axis", 1}}, 0, 9});
    add({"add_elements", "take_along_axis_gradient", {whole({B, 30, 6}), real({B, 30, 6}), real({B, 9, 6})}, {{"axis", 1}}, 0, 9});
    add({"count_above", "in_top_k", {whole({B}), real({B, 4})}, {{"k", 2}}});
    add({"copy_blocks", "concat", {real({B, 3}), real({B, 1}), real({B, 40})}, {{"axis", 1}}});
    add({"copy_blocks", "concat", {real({2, 50000}), real({1, 50000})}, {{"axis", 0}}});
    add({"running_sums", "cumsum", {real({B, 30, 200})}, {{"axis", 1}, {"reverse", true}}});
    add({"partial_sort", "top_k", {real({200, 60})}, {{"k", 7}}});
    add({"partial_sort", "top_k", {whole({300, 40})}, {{"k", 9}, {"largest", false}}});
    add({"copy_rows", "gather", {real({B, 4, 3}), whole({2, 2})}, {{"axis", 1}}});
    add({"add_rows", "gather_gradient", {whole({2}), real({B, 2, 3})}, {{"rows", Shape{4}}, {"axis", 1}}});
    add({"add_rows", "gather_gradient", {whole({B, 3}), real({B, 3, 6})}, {{"rows", Shape{4}}}});
    for (Shape x : {Shape{B, 6}, Shape{B, 5, 4, 3}, Shape{700, 33}, Shape{1, 3}}) {
      TensorType channel = real({x.back()});
      add({"block_batch_norm", "batch_norm", {real(x), channel, channel, channel, channel}, {}, 2e-6});
      for (const char* activation : {"none", "relu", "relu6"}) add({"block_batch_norm", "batch_norm_gradient", {real(x), channel, channel, channel, channel, real(x)}, {{"activation", activation}}, 2e-6});
    }
    for (Shape x : {Shape{B, 6}, Shape{B, 5, 33}, Shape{700, 40}}) {
      TensorType row = real({x.back()}), moment = real(Shape(x.begin(), x.end() - 1));
      add({"row_norm", "layer_norm", {real(x), row, row}, {}, 2e-6});
      add({"row_norm", "layer_norm", {real(x), row, row}, {{"rms", true}}, 2e-6});
      add({"row_norm", "layer_norm_gradient", {real(x), moment, moment, real(x), row}, {}, 2e-6});
    }
    for (Shape x : {Shape{B, 6}, Shape{B, 5, 4, 12}, Shape{70, 9, 36}}) {
      TensorType channel = real({x.back()}), moment = real({x[0], 3});
      add({"row_norm", "group_norm", {real(x), channel, channel}, {{"groups", 3}}, 2e-6});
      add({"row_norm", "group_norm_gradient", {real(x), moment, moment, real(x), channel}, {{"groups", 3}}, 2e-6});
    }
    for (bool causal : {false, true})
      for (auto [queries, keys] : {std::pair{70, 66}, {3, 130}}) {
        TensorType q = real({B, 3, queries, 20}), k = real({B, 3, keys, 20});
        add({"block_attention", "scaled_dot_product_attention", {q, k, k, {boolean, {B, 1, 1, keys}}}, {{"causal", causal}}, 1e-5});
        add({"block_attention", "scaled_dot_product_attention_gradient", {q, k, k, q, real({B, 3, queries}), q, real({queries, keys})}, {{"causal", causal}, {"scale", 0.01}}, 1e-4});
        const Attributes behind = {{"causal", causal}, {"layout", "bthk"}};
        q = real({B, queries, 3, 20}), k = real({B, keys, 3, 20});
        add({"block_attention", "scaled_dot_product_attention", {q, k, k, {boolean, {B, 1, 1, keys}}}, behind, 1e-5});
        add({"block_attention", "scaled_dot_product_attention_gradient", {q, k, k, q, real({B, 3, queries}), q, real({queries, keys})}, behind, 1e-4});
        const TensorType qkv = real({B, queries, 3, 3, 20});
        add({"block_attention", "packed_attention", {qkv, {boolean, {B, 1, 1, queries}}}, {{"causal", causal}}, 1e-5});
        add({"block_attention", "packed_attention_gradient", {qkv, q, real({B, 3, queries}), q, real({queries, queries})}, {{"causal", causal}, {"scale", 0.01}}, 1e-4});
      }
    for (const Attributes& a : {Attributes{}, Attributes{{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"padding", "same"}}, Attributes{{"window", Integers{3, 3}}, {"strides", Integers{1, 2}}}})
      for (std::int64_t c : {1, 3, 32}) add({"nhwc_max_pool2d", "max_pool2d", {real({B, 7, 6, c})}, a});
    add({"nhwc_max_pool2d", "max_pool2d_gradient", {real({B, 3, 3, 20}), {u8, {B, 3, 3, 20}}, real({B, 7, 6, 20})}});
    add({"nhwc_max_pool2d", "max_pool2d_gradient", {real({B, 4, 6, 3}), {u8, {B, 4, 6, 3}}, real({B, 7, 6, 3})}, {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"padding", "same"}}, 0, 6});
    Attributes pooled = {{"window", Integers{3, 2}}, {"strides", Integers{2, 1}}, {"padding", "same"}};
    add({"nhwc_avg_pool2d", "avg_pool2d", {real({B, 7, 6, 33})}, pooled, 1e-6});
    add({"nhwc_avg_pool2d", "avg_pool2d_gradient", {real({B, 4, 6, 33}), real({B, 7, 6, 33})}, pooled, 1e-6});
    for (double beta : {0.5, 0.75, 1.0, 0.6}) {
      Attributes norm = {{"depth_radius", 4}, {"bias", 1.0}, {"alpha", 0.25}, {"beta", beta}};
      add({"nhwc_local_response_norm", "local_response_norm", {real({B, 33, 5, 64})}, norm, 1e-6});
      add({"nhwc_local_response_norm", "local_response_norm_gradient", {real({B, 33, 5, 64}), real({B, 33, 5, 64})}, norm, 2e-6});
    }
    for (const char* mode : {"constant", "reflect", "symmetric"}) {
      Attributes frame = {{"before", Integers{0, 2, 1, 0}}, {"after", Integers{0, 0, 3, 0}}, {"mode", mode}};
      add({"copy_lines", "pad", {real({B, 21, 20, 9})}, frame});
      add({"sum_lines", "pad_gradient", {real({B, 23, 24, 9}), real({B, 21, 20, 9})}, frame, 1e-6});
    }
    for (const char* method : {"bilinear", "nearest"}) {
      Attributes size = {{"size", Integers{29, 7}}, {"method", method}};
      add({"nhwc_resize", "resize", {real({B, 15, 17, 9})}, size, 1e-6});
      add({"nhwc_resize", "resize_gradient", {real({B, 29, 7, 33}), real({B, 15, 17, 33})}, size, 1e-6});
    }
    TensorType scalar{i64, {}};
    for (Shape s : {Shape{B, 13}, Shape{3, 2 * B, 5}, Shape{9}, Shape{}}) {
      add({"philox", "random_uniform", {scalar, scalar}, {{"shape", s}, {"stream", 7}, {"low", -1.0}, {"high", 2.0}}});
      add({"philox", "random_normal", {scalar, scalar}, {{"shape", s}, {"stream", 7}, {"mean", 1.0}, {"deviation", 2.0}}});
      add({"philox", "dropout", {real(s), scalar, scalar}, {{"rate", 0.3}, {"stream", 7}}});
    }
    add({"philox", "dropout", {real({B, 20001}), scalar, scalar}, {{"rate", 0.3}, {"stream", 7}}});
    add({"kept_value", "row_count", {}, {{"dims", Shape{B, 3}}}});
    add({"kept_value", "row_weight", {}, {{"shape", Shape{B}}}});
    for (const Shape& s : {Shape{3, 13}, Shape{}, Shape{70001}}) {
      TensorType t = real(s), rate = real({});
      add({"simd_sgd", "sgd", {t, t, rate}});
      add({"simd_momentum", "momentum", {t, t, t, rate}});
      add({"simd_momentum", "momentum", {t, t, t, rate}, {{"nesterov", true}}});
      add({"simd_adam", "adam", {t, t, t, t, rate}});
      for (const OpDef& def : optimizer_defs()) {
        std::vector<TensorType> inputs;
        for (const InputDef& i : def.inputs)
          if (!i.optional) inputs.push_back(i.name == "w" || i.name == "gradient" || inputs.size() < def.outputs.size() ? t : rate);
        if (def.inputs[0].name == "w" && def.name != "sgd" && def.name != "momentum" && def.name != "adam") add({"simd_" + def.name, def.name, inputs});
      }
    }
    auto product = [&](Shape a, Shape b, const char* equation = "", double tolerance = 1e-5) { add({"onednn_matmul", "matmul", {real(std::move(a)), real(std::move(b))}, {{"equation", equation}}, tolerance}); };
    product({B, 13}, {13, 10});
    product({B, 1}, {1, 10});
    product({1, 13}, {13, 1});
    product({64, 1}, {1, 1});
    product({B, 3, 13}, {13, 10});
    product({B, 2, 3, 13}, {B, 2, 13, 4});
    product({B, 3, 13}, {B, 3, 7}, "abx,aby->xy");
    product({B, 13}, {10, 13}, "ax,yx->ay");
    product({B, 13}, {7, 13}, "ax,yx->ya");
    product({B, 13}, {B, 7}, "ax,ay->xy");
    product({B, 13}, {B, 7}, "ax,ay->yx");
    product({3, B, 13}, {3, 13, 4}, "hbx,hxy->hby");
    product({32, 676}, {676, 10}, "", 676 * 0x1p-24);  // so many roundings of sums that stay below the number of terms
    product({B, 4, 6}, {B, 4}, "abx,ab->ax");
    product({B, 3, 2, 4}, {B, 7, 2, 4}, "bqhd,bkhd->bhqk");
    product({B, 2, 3, 7}, {B, 7, 2, 4}, "bhqk,bkhd->bqhd");
    product({B, 2, 3, 4}, {2, 4, 6}, "bcik,cko->bcio");
    product({B, 2, 3, 4}, {B, 2, 3, 6}, "bcik,bcio->cko");
    product({B, 3, 4}, {4, 3}, "ijk,kj->i");
    product({B, 4}, {3, 4, 2}, "ik,akb->aib");
    struct Conv {
      Shape x, filter;
      Attributes attributes;
    };
    Attributes same = {{"padding", "same"}}, strided = {{"strides", Integers{2, 2}}, {"padding", "same"}}, uneven = {{"strides", Integers{2, 1}}};
    for (const Conv& v : {Conv{{B, 9, 8, 1}, {3, 3, 1, 32}, {}}, Conv{{B, 9, 8, 32}, {3, 3, 32, 16}, same}, Conv{{B, 7, 7, 3}, {5, 5, 3, 7}, strided}, Conv{{1, 6, 5, 2}, {2, 3, 2, 1}, uneven}, Conv{{B, 8, 8, 16}, {1, 1, 16, 33}, {}},
                          Conv{{B, 9, 8, 5}, {3, 3, 5, 16}, {{"padding", "same"}, {"dilations", Integers{2, 3}}}}, Conv{{B, 7, 7, 32}, {3, 3, 16, 16}, {{"groups", 2}}},
                          Conv{{B, 9, 8, 24}, {3, 3, 1, 24}, {{"strides", Integers{2, 2}}, {"padding", "same"}, {"groups", 24}}}, Conv{{B, 9, 8, 3}, {3, 3, 1, 6}, {{"padding", "same"}, {"groups", 3}}}}) {
      Builder b("shape");
      Value y = b.graph().add("conv2d", {b.input("x", f32, v.x), b.input("w", f32, v.filter)}, v.attributes);
      add({"onednn_conv2d", "conv2d", {real(v.x), real(v.filter)}, v.attributes, 2e-5});
      add({"onednn_conv2d", "conv2d_input_gradient", {y.type(), real(v.filter), real(v.x)}, v.attributes, 2e-5});
      add({"onednn_conv2d", "conv2d_filter_gradient", {real(v.x), y.type(), real(v.filter)}, v.attributes, 2e-5});
    }
    add({"onednn_conv2d", "conv2d_transpose", {real({B, 4, 5, 16}), real({3, 3, 8, 16})}, strided, 2e-5});
    return out;
  }();
  return all;
}

TEST(CpuKernels, agree_with_their_references) {
  for (const KernelCase& c : cases()) {
    std::string text = c.op;
    for (const TensorType& t : c.inputs) text += " " + to_string(t);
    for (const auto& [name, value] : c.attributes.entries()) text += " " + name + "=" + to_string(value);
    SCOPED_TRACE(text);
    expect_as_reference(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuKernels, every_kernel_is_in_a_case) {
  std::set<std::pair<std::string, std::string>> met = {{"conv2d_bias_relu", "onednn_conv2d_bias_relu"}, {"constant", "kept_value"},
                                                    {"conv2d_bias", "members_in_turn"}, {"conv2d_bias_add", "members_in_turn"}, {"matmul_add", "members_in_turn"}, {"matmul_bias", "members_in_turn"}, {"matmul_bias_gelu_tanh", "members_in_turn"}, {"elementwise", "members_in_turn"}, {"with_elementwise", "members_in_turn"}};  // have tests of their own, or no inputs to draw
  for (const KernelCase& c : cases()) met.emplace(c.op, c.kernel);
  KernelTable table = cpu_kernels();
  for (const Kernel& k : table.all()) EXPECT_TRUE(k.name.ends_with("_in_f32") || met.contains({k.op, k.name})) << k.op << " by " << k.name;  // halves have check_halves
}

/// A kernel's tensors are those of the thread that runs it; each of these takes over what the other has just run, while that drops what it had.
TEST(CpuKernels, of_onednn_go_from_thread_to_thread) {
  const KernelTable table = cpu_kernels();
  const Asked asked({"onednn_matmul", "matmul", {real({7, 8}), real({8, 9})}, {}});
  const auto choice = table.choose(asked.request);
  ASSERT_EQ(choice.name, "onednn_matmul");
  std::vector<std::unique_ptr<Prepared>> kernels;
  for (int k = 0; k < 2; ++k) kernels.push_back(table.prepare(choice.name, asked.request, {choice.support.scratch_bytes, false}));
  std::barrier together(2);
  std::vector<HostTensor> made;
  for (int t = 0; t < 2; ++t) made.emplace_back(f32, Extents{7, 9});
  auto run = [&](std::size_t t) {
    HostTensor scratch(u8, {choice.support.scratch_bytes});
    for (std::size_t round = 0; round < 60000; ++round) {
      together.arrive_and_wait();
      for (std::size_t apart = 0; apart < (t ? round % 200 : 0); ++apart) __builtin_ia32_pause();
      kernels[(t + round) % 2]->launch({{asked.inputs[0].raw(), asked.inputs[1].raw()}, {made[t].raw()}, scratch.raw()});
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(made[0], made[1]);
}

TEST(CpuKernels, elementwise_results_depend_on_no_position_length_or_alignment) {
  KernelTable table = cpu_kernels();
  for (const char* op : {"exp", "tanh", "sigmoid", "sqrt", "relu", "round", "rsqrt", "erf", "softplus", "gelu_tanh", "elu"}) {
    KernelCase whole_case{"simd_unary", op, {real({1037})}};
    Asked whole_one(whole_case);
    auto all = launched(*table.prepare("simd_unary", whole_one.request), whole_one, 0)[0];
    for (std::int64_t first : {0, 1, 5, 500})
      for (std::int64_t n : {1, 3, 16, 37}) {
        Asked part({"simd_unary", op, {real({n})}});
        std::vector<float> y(static_cast<std::size_t>(n));
        table.prepare("simd_unary", part.request)->launch({{reinterpret_cast<const std::byte*>(whole_one.inputs[0].data<float>().data() + first)}, {reinterpret_cast<std::byte*>(y.data())}, nullptr});
        EXPECT_EQ(std::memcmp(y.data(), all.data<float>().data() + first, y.size() * 4), 0) << op << " at " << first << " of " << n;
      }
  }
}

TEST(CpuKernels, a_constant_is_copied_from_the_tensor_that_the_graph_holds) {
  Asked a({"kept_value", "constant", {}, {{"value", HostTensor::of<float>({3}, {1, 2, 3})}}});
  const TensorRef& held = std::get<TensorRef>(*a.request.attributes->find("value"));
  const long before = held.use_count();
  auto kernel = cpu_kernels().prepare("kept_value", a.request);
  EXPECT_EQ(held.use_count(), before + 1);
  EXPECT_EQ(launched(*kernel, a, 0).at(0), *held);
}

/// (2, 3, places, features) to (2, places, 3, features), and back.
HostTensor turned(const HostTensor& x) {
  const Extents& s = x.shape();
  HostTensor out(x.dtype(), {s[0], s[2], s[1], s[3]});
  for (std::int64_t i = 0; i < s[0] * s[1] * s[2]; ++i) {
    const std::int64_t to = (i / (s[1] * s[2]) * s[2] + i % s[2]) * s[1] + i / s[2] % s[1];
    std::copy_n(x.data<float>().begin() + i * s[3], s[3], out.data<float>().begin() + to * s[3]);
  }
  return out;
}

/// Where the heads lie changes no bit: masks, logarithms and gradients of scores stay as they are.
TEST(CpuKernels, attention_of_heads_behind_the_places_has_the_bits_of_those_before_them) {
  const KernelTable kernels = cpu_kernels();
  for (const char* op : {"scaled_dot_product_attention", "scaled_dot_product_attention_gradient"}) {
    const TensorType q = real({2, 3, 70, 17}), k = real({2, 3, 66, 17}), v = real({2, 3, 66, 5}), y = real({2, 3, 70, 5}), mask = real({3, 1, 66});
    KernelCase c{"block_attention", op, {q, k, v, mask}, {{"causal", true}}};
    if (c.op.ends_with("gradient")) c.inputs = {q, k, v, y, real({2, 3, 70}), y, mask};
    const Asked before(c);
    c.attributes.set("layout", "bthk");
    for (TensorType& t : c.inputs)
      if (t.shape.size() == 4) std::swap(t.shape[1], t.shape[2]);
    Asked behind(c, 3);
    for (std::size_t i = 0; i < behind.inputs.size(); ++i) behind.inputs[i] = behind.inputs[i].shape().size() == 4 ? turned(before.inputs[i]) : before.inputs[i];
    for (const char* kernel : {"block_attention", kReferenceKernel}) {
      auto run = [&](const Asked& a) {
        const std::int64_t bytes = kernels.support(kernel, a.request).scratch_bytes;
        return launched(*kernels.prepare(kernel, a.request, {bytes, false}), a, bytes);
      };
      const std::vector<HostTensor> wanted = run(before), got = run(behind);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], got[i].shape() == wanted[i].shape() ? wanted[i] : turned(wanted[i])) << op << " by " << kernel << ", output " << i;
    }
  }
}

TEST(CpuKernels, indices_out_of_range_are_named) {
  KernelTable table = cpu_kernels();
  auto message = [&](const KernelCase& c) {
    Asked a(c);
    return message_of([&] { launched(*table.prepare(c.kernel, a.request), a, 0); });
  };
  EXPECT_THAT(message({"copy_rows", "gather", {real({1, 3}), whole({40})}}), HasSubstr("is outside the table of 1 rows"));
  EXPECT_THAT(message({"row_cross_entropy", "sparse_softmax_cross_entropy", {real({40, 1}), whole({40})}}), HasSubstr("is no class"));
}

TEST(CpuKernels, f64_convolutions_say_why_they_are_left_to_the_reference) {
  Asked a({"", "conv2d", {{f64, {kBatch, 5, 5, 1}}, {f64, {3, 3, 1, 2}}}});
  std::vector<std::string> reasons;
  EXPECT_EQ(cpu_kernels().choose(a.request, &reasons).name, "reference");
  EXPECT_THAT(reasons, testing::Contains(HasSubstr("input 0 is f64")));
}

TEST(CpuKernels, prepare_creates_the_primitive_for_the_threads_of_the_plan) {
  // Made and run on this thread, whatever OpenMP's own default is.
  KernelCase c{"onednn_conv2d", "conv2d_filter_gradient", {real({8, 12, 12, 16}), real({8, 10, 10, 32}), real({3, 3, 16, 32})}};
  KernelTable table = cpu_kernels();
  for (int threads : {1, 2}) {
    Asked a(c, threads);
    auto choice = table.choose(a.request);
    auto kernel = table.prepare(choice.name, a.request, {choice.support.scratch_bytes, false});
    std::vector<HostTensor> first;
    for (int ambient : {2, 1}) {
      omp_set_num_threads(ambient);
      auto got = launched(*kernel, a, choice.support.scratch_bytes);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << threads << " threads in a setting of " << ambient;
    }
    omp_set_num_threads(2);
  }
}

}  // namespace
}  // namespace belfry::test
