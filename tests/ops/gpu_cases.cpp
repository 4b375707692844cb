#include "gpu_cases.h"

namespace belfry::test {
namespace {

/// Pictures with few channels: windows that begin at odd elements and even ones, rows of an odd number of elements, tiles that are not full, filters that are no multiple of what a warp takes,
/// windows whose rows are less than four words, and more tiles than partial sums.
std::vector<OpCase> few_channels_cases(const std::string& op) {
  const Dim B = kBatch;
  auto of = [&](const char* name, DType t, Shape x, Shape window, std::int64_t filters, Integers strides, const char* padding, Dim high, Dim wide, bool widens = true) {
    const Attributes attributes = {{"strides", std::move(strides)}, {"padding", padding}, {"wide", widens && t != f32}};
    const TensorType of_x{t, x}, filter{t, {window[0], window[1], x[3], filters}}, y{t, {x[0], high, wide, filters}};
    const DType made = widens ? f32 : t;
    // Of TF32 a factor keeps 10 bits, and cuDNN rounds gradients of filters to halves.
    const double tolerance = t == f32 ? 0x1p-5 : widens && op == "conv2d" ? 1e-4 : 0x1p-6;
    OpCase out{.name = std::string("few channels, ") + name, .attributes = attributes, .inputs = {{of_x}, {filter}}, .outputs = {{made, y.shape}}, .tolerance = tolerance, .keep_dtypes = t != f32};
    if (op == "conv2d_filter_gradient") out.inputs = {{of_x}, {y}, {filter}}, out.outputs = {{made, filter.shape}};
    return out;
  };
  OpCase padded = of("padding of its own", bf16, {2, 14, 20, 3}, {7, 7}, 64, {2, 2}, "valid", 7, 10, false);
  padded.attributes.set("pads", Integers{3, 2, 1, 4});
  return {padded, of("a large window", bf16, {B, 19, 25, 3}, {7, 7}, 16, {2, 2}, "valid", 7, 10), of("a large window, rounded", bf16, {2, 15, 40, 3}, {7, 7}, 64, {2, 2}, "valid", 5, 17, false),
          of("steps", f16, {B, 13, 14, 3}, {3, 3}, 32, {2, 2}, "same", 7, 7), of("steps, rounded", f16, {B, 13, 14, 3}, {3, 3}, 8, {2, 2}, "same", 7, 7, false),
          of("one", bf16, {B, 11, 12, 1}, {3, 3}, 8, {1, 1}, "same", 11, 12), of("odd rows", bf16, {B, 9, 9, 3}, {3, 3}, 40, {1, 1}, "same", 9, 9), of("two", f16, {B, 14, 12, 2}, {5, 4}, 24, {3, 2}, "valid", 4, 5),
          of("four", bf16, {2, 12, 21, 4}, {7, 7}, 40, {1, 2}, "same", 12, 11), of("ragged tiles", f16, {2, 5, 115, 3}, {3, 3}, 8, {1, 1}, "same", 5, 115), of("many tiles", bf16, {300, 4, 5, 1}, {2, 3}, 8, {1, 1}, "valid", 3, 3),
          of("a tap", bf16, {B, 5, 6, 1}, {1, 1}, 8, {1, 1}, "valid", 5, 6), of("a column", f16, {B, 9, 6, 1}, {5, 2}, 16, {1, 1}, "valid", 5, 5), of("steps of three", f16, {B, 13, 20, 3}, {4, 3}, 8, {2, 3}, "same", 7, 7),
          of("f32, a large window", f32, {2, 15, 21, 3}, {7, 7}, 40, {2, 2}, "valid", 5, 8), of("f32, steps", f32, {B, 13, 14, 3}, {3, 3}, 32, {2, 2}, "same", 7, 7), of("f32, one", f32, {B, 9, 115, 1}, {3, 3}, 8, {1, 1}, "same", 9, 115)};
}

}  // namespace

std::vector<OpCase> gpu_cases(const std::string& op) {
  const Dim B = kBatch;
  if (op == "add")
    return {{.name = "with a tail", .inputs = {real({1003}), real({1003})}, .outputs = {{f32, {1003}}}},
            {.name = "a bias", .inputs = {real({B, 5, 64}), real({64})}, .outputs = {{f32, {B, 5, 64}}}},
            {.name = "a bias of odd size", .inputs = {real({B, 5, 33}), real({33})}, .outputs = {{f32, {B, 5, 33}}}},
            {.name = "a value per row", .inputs = {real({B, 1, 64}), real({B, 5, 64})}, .outputs = {{f32, {B, 5, 64}}}},
            {.name = "four axes apart", .inputs = {real({2, 1, 4, 1, 8}), real({1, 3, 1, 5, 1})}, .outputs = {{f32, {2, 3, 4, 5, 8}}}},
            {.name = "a scalar and a tail", .inputs = {real({}), real({70001})}, .outputs = {{f32, {70001}}}}};
  if (op == "div")
    return {{.name = "integers, column and row", .inputs = {whole_numbers({B, 1, 70}), {{i32, {5, 1}}, 1, 4}}, .outputs = {{i32, {B, 5, 70}}}},
            {.name = "wide integers", .inputs = {whole_numbers({B, 7}, i64), {{i64, {}}, -3, -1}}, .outputs = {{i64, {B, 7}}}}};
  if (op == "relu") return {{.name = "many", .inputs = {real({B, 30001})}, .outputs = {{f32, {B, 30001}}}}};
  if (op == "reduce_sum" || op == "reduce_max") {
    auto of = [](const char* name, Shape x, Integers axes, Shape y) { return OpCase{.name = name, .attributes = {{"axes", std::move(axes)}}, .inputs = {real(std::move(x))}, .outputs = {{f32, std::move(y)}}}; };
    return {of("many columns in blocks", {700, 67}, {0}, {67}), of("one column in blocks", {40003}, {}, {}), of("a block of one", {16385}, {}, {}), of("one column in groups of blocks", {530001}, {}, {}), of("rows in groups of blocks", {2, 270000}, {1}, {2}), of("axes apart", {3, 5, 4, 7}, {0, 2}, {5, 7}), of("rows", {70, 130}, {1}, {70}), of("many blocks", {9000, 33}, {0}, {33}), of("in the middle", {3, 40, 6}, {1}, {3, 6}),
            of("few columns in blocks", {20011, 3}, {0}, {3}), of("columns in packs", {2, 33, 8192}, {1}, {2, 8192}), of("columns in packs, a block", {300, 2, 512}, {1}, {300, 512}), of("more blocks than are read ahead", {97301, 40}, {0}, {40}),
            of("many columns of blocks of a row", {9, 32768}, {0}, {32768}), of("many columns of blocks, in packs", {32, 9, 4096}, {1}, {32, 4096}),
            of("rows of a few thousand", {3, 5003}, {1}, {3}), of("columns through blocks", {1003, 2048}, {0}, {2048}), of("columns through three rounds", {3601, 1024}, {0}, {1024}), of("columns through one block more than a round", {2, 1793, 1024}, {1}, {2, 1024}),
            {.name = "of f64, whose every bit tells the order", .attributes = {{"axes", Integers{0}}}, .inputs = {{{f64, {97301, 5}}}}, .outputs = {{f64, {5}}}, .tolerance = 1e-9, .keep_dtypes = true},
            {.name = "one column of f64", .attributes = {{"axes", Integers{1}}}, .inputs = {{{f64, {2, 270001}}}}, .outputs = {{f64, {2}}}, .tolerance = 1e-9, .keep_dtypes = true},
            {.name = "halves in packs", .attributes = {{"axes", Integers{0}}}, .inputs = {{{bf16, {17, 16384}}}}, .outputs = {{bf16, {16384}}}, .tolerance = 0x1p-7, .keep_dtypes = true}};
  }
  if (op == "softmax" || op == "log_softmax")
    return {{.name = "a warp per row", .inputs = {real({B, 100})}, .outputs = {{f32, {B, 100}}}},
            {.name = "a block per row", .inputs = {real({B, 1500})}, .outputs = {{f32, {B, 1500}}}},
            {.name = "lines side by side", .attributes = {{"axis", 1}}, .inputs = {real({B, 10, 40})}, .outputs = {{f32, {B, 10, 40}}}}};
  if (op == "layer_norm")
    return {{.name = "a block per row", .attributes = {{"axis", 1}}, .inputs = {real({B, 30, 50}), real({30, 50}), real({30, 50})}, .outputs = {{f32, {B, 30, 50}}, {f32, {B}}, {f32, {B}}}},
            {.name = "packs in warps", .inputs = {real({B, 7, 300}), real({300}), real({300})}, .outputs = {{f32, {B, 7, 300}}, {f32, {B, 7}}, {f32, {B, 7}}}},
            {.name = "one by one in warps", .inputs = {real({B, 7, 301}), real({301}), real({301})}, .outputs = {{f32, {B, 7, 301}}, {f32, {B, 7}}, {f32, {B, 7}}}},
            {.name = "halves in packs", .inputs = {{{bf16, {B, 7, 600}}}, real({600}), real({600})}, .outputs = {{bf16, {B, 7, 600}}, {f32, {B, 7}}, {f32, {B, 7}}}, .tolerance = 0x1p-7, .keep_dtypes = true},
            {.name = "rounded, packs in warps", .attributes = {{"rounded_to", "bf16"}}, .inputs = {real({B, 7, 300}), real({300}), real({300})}, .outputs = {{bf16, {B, 7, 300}}, {f32, {B, 7}}, {f32, {B, 7}}}, .tolerance = 0x1p-7, .keep_dtypes = true},
            {.name = "rows that no block keeps", .inputs = {real({B, 9000}), real({9000}), real({9000})}, .outputs = {{f32, {B, 9000}}, {f32, {B}}, {f32, {B}}}}};
  if (op == "layer_norm_gradient") {
    auto of = [&](const char* name, std::int64_t rows, std::int64_t n, DType t = f32) {
      const TensorType x{t, {B, rows, n}}, moments{f32, {B, rows}}, parameter{f32, {n}};
      return OpCase{.name = name, .inputs = {{x}, {moments}, {moments, 0.25, 2}, {x}, {parameter}}, .outputs = {x, parameter, parameter}, .tolerance = t == f32 ? 1e-4 : 0x1p-7, .keep_dtypes = t != f32};
    };
    OpCase of_half = of("a half of dy, packs in warps", 7, 300);
    of_half.attributes = {{"wide", true}}, of_half.inputs[3].type.dtype = bf16, of_half.tolerance = 1e-4, of_half.keep_dtypes = true;
    return {of_half, of("packs in warps", 7, 300), of("one by one in warps", 7, 301), of("packs in a block", 9, 1500), of("packs in a block, sums apart", 3, 5000), of("several rows of a warp", 300, 36), of("halves in packs", 9, 600, bf16), of("rows that no block keeps", 1, 9000),
            {.name = "rows in blocks", .inputs = {real({B, 30, 40}), real({B, 30}), positive({B, 30}), real({B, 30, 40}), real({40})}, .outputs = {{f32, {B, 30, 40}}, {f32, {40}}, {f32, {40}}}, .tolerance = 1e-4},
            {.name = "more blocks than warps", .inputs = {real({B, 100, 17}), real({B, 100}), positive({B, 100}), real({B, 100, 17}), real({17})}, .outputs = {{f32, {B, 100, 17}}, {f32, {17}}, {f32, {17}}}, .tolerance = 1e-4}};
  }
  // Lists that are longer than what is read ahead, or than a thread walks; rows that have none; more rows than a digit has values, or two; many chunks.
  if (op == "gather_gradient") {
    auto of = [&](const char* name, std::int64_t rows, Dim used, Shape at, std::int64_t width, DType t = i32) {
      Shape dy = at;
      dy.push_back(width);
      return OpCase{.name = name, .attributes = {{"rows", Shape{rows}}}, .inputs = {below(used, at, t), real(dy)}, .outputs = {{f32, {rows, width}}}, .tolerance = 1e-5};
    };
    return {of("long lists", 9, 3, {B, 70}, 5), of("longer lists", 7, 2, {B, 500}, 12), of("many lists", 200, 150, {B, 200}, 1, i64), of("one list", 300, 1, {B, 400}, 9), of("more rows than a digit", 3000, 2990, {B, 300}, 4),
            of("more rows than two digits", 70001, 70001, {B, 200}, 2, i64), of("many chunks", 500, 500, {B, 12001}, 1),
            {.name = "long lists of an axis", .attributes = {{"rows", Shape{5}}, {"axis", 1}}, .inputs = {below(2, {400}), real({B, 400, 3})}, .outputs = {{f32, {B, 5, 3}}}, .tolerance = 1e-5}};
  }
  if (op == "scatter_add")
    return {{.name = "long lists", .inputs = {real({6, 3}), below(5, {300}), real({300, 3})}, .outputs = {{f32, {6, 3}}}, .tolerance = 1e-5},
            {.name = "longer lists", .inputs = {real({6, 20}), below(2, {1500}), real({1500, 20})}, .outputs = {{f32, {6, 20}}}}};
  // Features in the runs of 16 bytes that cuDNN reads; the logarithms are about those of the scores.
  const Attributes behind = {{"causal", true}, {"layout", "bthk"}};
  auto halves = [&](const char* name, Attributes a, std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t values, std::int64_t heads = 0) {
    auto rows_of = [&](std::int64_t places, std::int64_t features) { return TensorType{bf16, heads ? Shape{2, places, heads, features} : Shape{2, places, features}}; };
    auto scores = [&](Shape lead, std::int64_t last) {
      lead.push_back(last);
      return TensorType{f32, lead};
    };
    const TensorType q = rows_of(queries, width), k = rows_of(keys, width), v = rows_of(keys, values), y = rows_of(queries, values), log_sum = scores(heads ? Shape{2, heads} : Shape{2}, queries);
    OpCase out{.name = name, .attributes = std::move(a), .inputs = {{q}, {k}, {v}}, .outputs = {y, log_sum}, .tolerance = 0x1p-6, .keep_dtypes = true};
    if (op == "scaled_dot_product_attention") return out;
    out.inputs.insert(out.inputs.end(), {{y}, {log_sum, 5, 6}, {y}});
    out.outputs = {q, k, v, scores(log_sum.shape, keys)};
    return out;
  };
  // Without a mask, as kernels that round take them.
  auto whole = [&](const char* name, Attributes a, std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t values, std::int64_t heads = 3) {
    const bool before = !a.find("layout");
    OpCase out = halves(name, std::move(a), queries, keys, width, values, heads);
    auto rounded = [&](TensorType& t, bool of_rows) {
      t.dtype = f32;
      if (before && of_rows && t.shape.size() == 4) std::swap(t.shape[1], t.shape[2]);
    };
    for (CaseInput& x : out.inputs) rounded(x.type, true);
    for (std::size_t i = 0; i < out.outputs.size(); ++i) rounded(out.outputs[i], i < 3);
    out.tolerance = 1e-4;
    return out;
  };
  if (op.starts_with("packed_attention")) {
    auto of = [&](const char* name, DType t, Attributes a, std::int64_t places, std::int64_t heads, std::int64_t width, double tolerance, std::optional<CaseInput> mask = {}) {
      const TensorType qkv{t, {2, places, 3, heads, width}}, y{t, {2, places, heads, width}}, log_sum{f32, {2, heads, places}};
      OpCase out{.name = name, .attributes = std::move(a), .inputs = {{qkv}}, .outputs = {y, log_sum}, .tolerance = tolerance, .keep_dtypes = true};
      if (op != "packed_attention") out.inputs.insert(out.inputs.end(), {{y}, {log_sum, 5, 6}, {y}}), out.outputs = {qkv, {f32, {2, heads, places, places}}};
      if (mask) out.inputs.push_back(*mask);
      return out;
    };
    const Attributes causal = {{"causal", true}};
    return {of("tiles, masked", f32, {}, 70, 3, 17, 1e-4, bits({2, 1, 1, 70})), of("on tensor cores", f32, {}, 133, 3, 17, 1e-4), of("on tensor cores, causal", f32, causal, 130, 2, 64, 1e-4),
            of("on tensor cores, a block for a head", f32, causal, 70, 2, 36, 1e-4), of("on tensor cores, a head", f32, {}, 90, 1, 24, 1e-4), of("halves", bf16, {}, 70, 3, 24, 0x1p-6), of("halves, causal", bf16, causal, 130, 2, 64, 0x1p-6)};
  }
  // Tiles that are not full, and more features than a tile is wide.
  if (op == "scaled_dot_product_attention")
    return {{.name = "tiles, masked", .inputs = {real({2, 2, 70, 17}), real({2, 2, 133, 17}), real({2, 2, 133, 70}), bits({2, 1, 1, 133})}, .outputs = {{f32, {2, 2, 70, 70}}, {f32, {2, 2, 70}}}},
            {.name = "tiles, causal", .attributes = {{"causal", true}}, .inputs = {real({2, 130, 16}), real({2, 65, 16}), real({2, 65, 16})}, .outputs = {{f32, {2, 130, 16}}, {f32, {2, 130}}}},
            {.name = "tiles, heads behind", .attributes = behind, .inputs = {real({2, 70, 3, 17}), real({2, 66, 3, 17}), real({2, 66, 3, 70}), bits({2, 1, 1, 66})}, .outputs = {{f32, {2, 70, 3, 70}}, {f32, {2, 3, 70}}}},
            whole("on tensor cores", {}, 70, 133, 17, 33, 1), whole("on tensor cores, causal, heads behind", behind, 130, 66, 64, 64), whole("on tensor cores, few queries", {}, 50, 200, 36, 20, 2),
            whole("on tensor cores, few queries one by one", {{"scale", 0.7}}, 20, 70, 50, 9, 1), whole("on tensor cores, causal, blocks of queries", {{"causal", true}}, 270, 200, 32, 64, 1), whole("on tensor cores, a query", behind, 1, 1, 8, 64),
            whole("on tensor cores, no keys", {}, 3, 0, 4, 4, 1), whole("on tensor cores, scores of nothing", {{"causal", true}, {"scale", 1e-300}}, 5, 5, 4, 4, 1),
            halves("halves", {}, 70, 90, 24, 40), halves("halves, causal", {{"causal", true}}, 130, 130, 16, 16), halves("halves, heads behind", behind, 130, 90, 24, 40, 3)};
  if (op == "scaled_dot_product_attention_gradient") {
    auto of = [](const char* name, Attributes a, std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t values, CaseInput mask) {
      TensorType q{f32, {2, queries, width}}, k{f32, {2, keys, width}}, v{f32, {2, keys, values}}, y{f32, {2, queries, values}};
      return OpCase{.name = name, .attributes = std::move(a), .inputs = {{q}, {k}, {v}, {y}, {{f32, {2, queries}}, 20, 24}, {y}, std::move(mask)}, .outputs = {q, k, v, {f32, {2, queries, keys}}}, .tolerance = 2e-5};
    };
    const TensorType q = {f32, {2, 70, 3, 17}}, k{f32, {2, 66, 3, 17}}, v{f32, {2, 66, 3, 66}}, y{f32, {2, 70, 3, 66}};
    return {of("tiles, masked", {}, 70, 133, 17, 66, bits({133})), of("tiles, causal", {{"causal", true}}, 130, 65, 66, 5, real({130, 65})), halves("halves", {}, 70, 90, 24, 40),
            {.name = "tiles, heads behind", .attributes = behind, .inputs = {{q}, {k}, {v}, {y}, {{f32, {2, 3, 70}}, 5, 6}, {y}, real({3, 1, 66})}, .outputs = {q, k, v, {f32, {2, 3, 70, 66}}}, .tolerance = 1e-4},
            whole("on tensor cores", {}, 70, 133, 17, 66, 1), whole("on tensor cores, causal, heads behind", behind, 130, 66, 66, 9),
            whole("on tensor cores, features in fours", {}, 66, 130, 68, 20, 1), whole("on tensor cores, a block for a head", behind, 100, 70, 36, 64, 2),
            whole("on tensor cores, queries that stay", {}, 50, 140, 40, 24, 1), whole("on tensor cores, queries that come again", {}, 70, 90, 24, 16, 1), whole("on tensor cores, a block for a chunk", {}, 140, 50, 9, 70, 1),
            halves("halves, causal", {{"causal", true}}, 130, 130, 16, 16), halves("halves, heads behind", behind, 130, 90, 24, 40, 3)};
  }
  if (op.starts_with("max_pool2d") || op.starts_with("avg_pool2d")) {
    auto of = [&](const char* name, DType t, std::int64_t channels, Integers dilations) {
      const Attributes attributes = {{"window", Integers{3, 3}}, {"strides", Integers{2, 2}}, {"padding", "same"}, {"dilations", std::move(dilations)}};
      TensorType x{t, {B, 13, 11, channels}}, y{t, {B, 7, 6, channels}}, index{u8, {B, 7, 6, channels}};
      OpCase out{.name = name, .attributes = attributes, .inputs = {{x}}, .outputs = {y}, .tolerance = 1e-5, .keep_dtypes = t != f32};
      if (op == "max_pool2d") out.outputs.push_back(index);
      if (op == "max_pool2d_gradient") out.inputs = {{y}, below(9, {B, 7, 6, channels}, u8), {x}}, out.outputs = {x};
      if (op == "avg_pool2d_gradient") out.inputs = {{y}, {x}}, out.outputs = {x};
      if (op.starts_with("avg") && t != f32) out.tolerance = t == bf16 ? 0x1p-7 : 0x1p-10;  // a last place: sums of quotients lie on ties of halves
      return out;
    };
    std::vector<OpCase> out = {of("many", f32, 19, {1, 1}), of("channels in packs", f32, 8, {1, 1}), of("channels in packs, taps apart", f32, 12, {2, 2}), of("halves in packs", bf16, 16, {1, 1}), of("halves one by one", f16, 5, {2, 1})};
    // Sizes of 64 bits, and loops that would not end if they went over the window.
    if (op.starts_with("avg")) {
      const TensorType x{f32, {B, 3, 4, 2}};
      out.push_back({.name = "a window far beyond the picture", .attributes = {{"window", Integers{2000000000, 3}}, {"strides", Integers{1, 1}}, {"padding", "same"}, {"dilations", Integers{2, 1}}}, .inputs = {{x}}, .outputs = {x}});
      if (op != "avg_pool2d") out.back().inputs.push_back({x});
    }
    return out;
  }
  // Around pictures, whose channels are packs or not.
  if (op == "pad" || op == "pad_gradient") {
    auto of = [&](const char* name, DType t, std::int64_t channels, double value) {
      const Attributes attributes = {{"before", Integers{0, 1, 2, 0}}, {"after", Integers{0, 2, 1, 0}}, {"mode", "constant"}, {"value", value}};
      const TensorType x{t, {B, 5, 6, channels}}, y{t, {B, 8, 9, channels}};
      if (op == "pad") return OpCase{.name = name, .attributes = attributes, .inputs = {{x}}, .outputs = {y}, .keep_dtypes = true};
      return OpCase{.name = name, .attributes = attributes, .inputs = {{y}, {x}}, .outputs = {x}, .keep_dtypes = true};
    };
    return {of("channels in packs", f32, 12, 0.5), of("channels one by one", f32, 3, -1), of("halves in packs", bf16, 16, 1.5), of("halves one by one", f16, 9, 0)};
  }
  // A filter per channel: packs of channels, runs of neighbours with some left over, windows that step, several parts.
  if (op == "conv2d" || op == "conv2d_input_gradient" || op == "conv2d_filter_gradient") {
    auto of = [&](const char* name, DType t, std::int64_t channels, std::int64_t high, std::int64_t wide, Integers strides, Integers dilations, Dim rows, std::int64_t window = 3) {
      const Attributes attributes = {{"strides", strides}, {"padding", "same"}, {"dilations", std::move(dilations)}, {"groups", channels}};
      const TensorType x{t, {rows, high, wide, channels}}, filter{t, {window, window, 1, channels}}, y{t, {rows, (high + strides[0] - 1) / strides[0], (wide + strides[1] - 1) / strides[1], channels}};
      OpCase out{.name = name, .attributes = attributes, .inputs = {{x}, {filter}}, .outputs = {y}, .tolerance = t == f32 ? 1e-5 : 0x1p-6, .keep_dtypes = t != f32};
      if (op == "conv2d_input_gradient") out.inputs = {{y}, {filter}, {x}}, out.outputs = {x};
      if (op == "conv2d_filter_gradient") out.inputs = {{x}, {y}, {filter}}, out.outputs = {filter};
      return out;
    };
    OpCase many = of("a filter per channel, many", f32, 36, 40, 41, {1, 1}, {1, 1}, Dim(4));
    many.tolerance = 1e-4;  // cuDNN adds 6,560 products one by one
    std::vector<OpCase> out = {of("a filter per channel", f32, 8, 7, 9, {1, 1}, {1, 1}, B), of("a filter per channel, steps", f32, 12, 8, 7, {2, 2}, {1, 1}, B), of("a filter per channel, one by one", f32, 7, 5, 6, {2, 1}, {1, 1}, B),
            of("a filter per channel, taps apart", f32, 4, 9, 10, {1, 1}, {2, 3}, B), of("a filter per channel, halves", bf16, 16, 6, 6, {1, 1}, {1, 1}, B), of("a filter per channel, halves, steps", f16, 24, 9, 9, {2, 2}, {1, 1}, B),
            of("a filter per channel, an even picture in steps", bf16, 16, 6, 10, {2, 2}, {1, 1}, B), of("a filter per channel, steps of three", f32, 6, 8, 11, {3, 3}, {1, 1}, B),
            of("a filter per channel, steps beyond the window", f32, 8, 11, 13, {6, 5}, {1, 1}, B), of("a filter per channel, steps, taps apart", bf16, 8, 9, 11, {2, 2}, {2, 3}, B),
            of("a filter per channel, 25 taps", bf16, 200, 9, 11, {1, 1}, {1, 1}, B, 5), many};
    if (op == "conv2d_filter_gradient") out.push_back(of("a filter per channel, many runs a thread", f32, 36, 3700, 1, {1, 1}, {1, 1}, Dim(4))), out.back().tolerance = 1e-4;
    if (op != "conv2d_input_gradient")
      for (OpCase& c : few_channels_cases(op)) out.push_back(std::move(c));
    return out;
  }
  // Channels in packs and not, rows in one block and several; cuDNN's norms read runs of 16 bytes.
  if (op == "batch_norm" || op == "batch_norm_gradient") {
    auto of = [&](const char* name, DType t, Shape x, double middle = 0, bool parameters = true, const char* activation = "none") {
      const Shape channels{x.back()};
      const CaseInput data{{t, std::move(x)}, middle - 2, middle + 2};
      const TensorType c{f32, channels};
      CaseInput gamma = positive(channels), beta = real(channels);
      gamma.given = beta.given = parameters;
      const double tolerance = is_half(t) ? 0x1p-6 : middle != 0 ? 1e-5 : 1e-4;
      if (op == "batch_norm") return OpCase{.name = name, .inputs = {data, gamma, beta, real(channels), positive(channels)}, .outputs = {data.type, c, c, c}, .tolerance = tolerance, .keep_dtypes = t != f32};
      if (activation != std::string("none")) beta.low = -2, beta.high = 8;  // so that y lies beyond both edges
      return OpCase{.name = name, .attributes = {{"activation", activation}}, .inputs = {data, gamma, beta, {c, middle - 2, middle + 2}, positive(channels), {data.type}}, .outputs = {data.type, c, c}, .tolerance = tolerance, .keep_dtypes = t != f32};
    };
    std::vector<OpCase> out = {of("pictures of eight channels", f32, {B, 5, 7, 8}), of("rows of eight channels", f32, {B, 8}), of("eight channels as they are", f32, {B, 2, 3, 8}, 0, false), of("halves", bf16, {B, 5, 7, 8}),
            of("halves one by one", f16, {B, 5, 7, 5}), of("packs in blocks", f32, {B, 40, 40, 8}), of("halves in blocks", f16, {B, 53, 53, 16}), of("few rows of halves", bf16, {B, 30, 30, 16}), of("columns of packs", f32, {B, 2801, 136}), of("columns of few rows", f32, {B, 100, 136}),
            of("more blocks than lanes", f32, {33000, 33}), of("many rows of packs", f32, {B, 106, 106, 8}), of("a large mean", f32, {B, 40, 40, 6}, 1e3)};
    if (op == "batch_norm_gradient")
      for (const OpCase& c : {of("behind relu", f32, {B, 5, 7, 8}, 0, true, "relu"), of("behind relu6, one by one", f32, {B, 41, 5}, 0, true, "relu6"), of("behind relu6, halves", bf16, {B, 53, 53, 72}, 0, true, "relu6"), of("behind relu6, few rows of halves", bf16, {B, 30, 30, 16}, 0, true, "relu6"),
                              of("behind relu, as they are", f16, {B, 2, 3, 8}, 0, false, "relu")})
        out.push_back(c);
    return out;
  }
  if (op == "adam_rate") return {{.name = "a late step", .inputs = {positive({}), {{i64, {}}, 0, 0, 100000}}, .outputs = {{f32, {}}}}};
  if (op == "argmax") return {{.name = "a block per row", .inputs = {real({B, 1500})}, .outputs = {{i32, {B}}}}, {.name = "equals", .attributes = {{"last", true}}, .inputs = {whole_numbers({B, 90})}, .outputs = {{i32, {B}}}}};
  if (op == "adam") return {{.name = "with a tail", .inputs = {real({1003}), real({1003}), positive({1003}), real({1003}), positive({})}, .outputs = {{f32, {1003}}, {f32, {1003}}, {f32, {1003}}}}};
  if (op == "transpose")
    return {{.name = "in tiles", .attributes = {{"order", Integers{1, 0}}}, .inputs = {real({70, 45})}, .outputs = {{f32, {45, 70}}}},
            {.name = "in tiles, of five axes", .attributes = {{"order", Integers{3, 0, 4, 1, 2}}}, .inputs = {real({2, 9, 3, 4, 10})}, .outputs = {{f32, {4, 2, 10, 9, 3}}}}};
  if (op == "gather") return {{.name = "wide rows", .attributes = {{"axis", 0}}, .inputs = {real({11, 64}), below(11, {B, 5})}, .outputs = {{f32, {B, 5, 64}}}}};
  if (op == "dropout" || op == "random_uniform") {
    CaseInput number{{i64, {}}, 0, 0, 1000};
    if (op == "dropout") return {{.name = "rows in the middle", .attributes = {{"rate", 0.3}, {"stream", 9}}, .inputs = {real({3, 2 * B, 7}), number, number}, .outputs = {{f32, {3, 2 * B, 7}}}}};
    return {{.name = "no rows", .attributes = {{"shape", Shape{5, 13}}, {"stream", 9}, {"low", -1.0}, {"high", 2.0}}, .inputs = {number, number}, .outputs = {{f32, {5, 13}}}}};
  }
  return {};
}

}  // namespace belfry::test
