#include "tables.h"

namespace belfry::test {

OpTables cast_cases() {
  auto of = [](const char* name, CaseInput x, DType to, bool keep = true) {
    return OpCase{.name = name, .attributes = {{"dtype", to}}, .inputs = {x}, .outputs = {{to, x.type.shape}}, .keep_dtypes = keep};
  };
  auto half = [](DType dtype) {
    CaseInput out = real({kBatch, 3});
    out.type.dtype = dtype;
    return out;
  };
  CaseInput wide = real({kBatch, 3}), wide_whole = real({3});
  wide.type.dtype = wide_whole.type.dtype = f64;
  OpTable table{"cast",
                {of("same", real({kBatch, 3}), f32, false), of("same without rows", real({3}), f32, false), of("widening", real({kBatch, 3}), f64), of("widening without rows", real({3}), f64),
                 of("narrowing", wide, f32), of("narrowing without rows", wide_whole, f32), of("bool to float", bits({kBatch}), f32), of("float to integer", real({kBatch}), i32),
                 of("integer to float", whole_numbers({kBatch}), f64), of("integer to float without rows", whole_numbers({2}), f64), of("bytes", below(200, {kBatch}, u8), f32),
                 of("to bool", below(2, {kBatch}), boolean), of("to f16", real({kBatch, 3}), f16), of("to bf16 without rows", real({3}), bf16), of("from f16", half(f16), f32), of("from bf16", half(bf16), f64)}};
  table.cases[0].refused = {{{{f32, {2}}}, {"attribute 'dtype' is a dtype"}, {{"dtype", "f32"}}}};
  return {table};
}

}  // namespace belfry::test
