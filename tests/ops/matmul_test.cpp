#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <belfry/ops/build.h>

#include "built.h"
#include "tables.h"

namespace belfry::test {

OpTables matmul_cases() {
  auto of = [](const char* name, const char* equation, Shape a, Shape b, Shape y) {
    return OpCase{.name = name, .attributes = {{"equation", equation}}, .inputs = {real(std::move(a)), real(std::move(b))}, .outputs = {{f32, std::move(y)}}};
  };
  const Dim B = kBatch;
  OpTable t{"matmul",
            {of("dense", "", {B, 4}, {4, 3}, {B, 3}),
             of("without rows", "", {2, 4}, {4, 3}, {2, 3}),
             of("leading axes", "", {B, 2, 4}, {4, 3}, {B, 2, 3}),
             of("batched", "", {B, 2, 4}, {B, 4, 3}, {B, 2, 3}),
             of("batched by heads", "", {2 * B, 2, 3}, {2 * B, 3, 2}, {2 * B, 2, 2}),
             of("gradient of a weight", "bi,bo->io", {B, 4}, {B, 3}, {4, 3}),
             of("gradient of a weight, leading axes", "bsi,bso->io", {B, 2, 4}, {B, 2, 3}, {4, 3}),
             of("gradient of an input", "bo,io->bi", {B, 3}, {4, 3}, {B, 4}),
             of("all pairs of rows", "id,jd->ij", {B, 3}, {B, 3}, {B, B}),
             of("adjacency", "ij,jd->id", {B, B}, {B, 3}, {B, 3}),
             of("adjacency from the right", "ij,id->jd", {B, B}, {B, 3}, {B, 3}),
             of("rows times rows", "ij,jk->ik", {B, B}, {B, B}, {B, B}),
             of("time-major", "", {3, B, 4}, {4, 2}, {3, B, 2}),
             of("outer product", "i,j->ij", {3}, {4}, {3, 4}),
             of("dot", "i,i->", {5}, {5}, {}),
             of("dot over rows", "i,i->", {B}, {B}, {}),
             of("scaled", "bi,b->bi", {B, 3}, {B}, {B, 3}),
             of("weight first", "io,bi->bo", {4, 3}, {B, 4}, {B, 3}),
             of("scores of heads", "bqhd,bkhd->bhqk", {B, 3, 2, 4}, {B, 2, 2, 4}, {B, 2, 3, 2}),
             of("values of heads", "bhqk,bkhd->bqhd", {B, 2, 3, 4}, {B, 4, 2, 3}, {B, 3, 2, 3}),
             of("leading axes that b lacks", "bcik,cko->bcio", {B, 2, 3, 4}, {2, 4, 3}, {B, 2, 3, 3}),
             of("its gradient: summed axes apart", "bcik,bcio->cko", {B, 2, 3, 4}, {B, 2, 3, 2}, {2, 4, 2}),
             of("summed axes in another order", "ijk,kj->i", {B, 3, 4}, {4, 3}, {B}),
             of("columns apart", "ik,akb->aib", {B, 4}, {3, 4, 2}, {3, B, 2})}};
  t.cases[0].refused = {{{{f32, {2, 3}}, {f32, {4, 5}}}, {"is 3 in one operand and 4 in the other"}},
                        {{{f32, {3}}, {f32, {3, 4}}}, {"needs a (…, m, k) and b (k, n)"}},
                        {{{i32, {2, 3}}, {i32, {3, 4}}}, {"must be f32 or f64"}},
                        {{{f32, {2, 3}}, {f64, {3, 4}}}, {"dtypes f32 and f64"}},
                        {{{f32, {2, 3}}, {f32, {3, 4}}}, {"names 1 and 2 axes"}, {{"equation", "a,bc->ac"}}},
                        {{{f32, {2, 2}}, {f32, {2, 4}}}, {"an axis of one operand twice"}, {{"equation", "aa,ab->ab"}}},
                        {{{f32, {2, 3}}, {f32, {3, 4}}}, {"in one operand alone"}, {{"equation", "ab,bc->c"}}},
                        {{{f32, {2, 3}}, {f32, {3, 4}}}, {"axis 'z' of y is in no operand"}, {{"equation", "ab,bc->az"}}},
                        {{{f32, {2, 3}}, {f32, {3, 4}}}, {"an axis of y twice"}, {{"equation", "ab,bc->aac"}}}};
  for (const char* wrong : {"ab", "ab,bc", "ab->bc", "Ab,bc->ac", "ab,bc,cd->ad", "ab bc->ac", "ab,bc->a>c", "ab-,bc->ac"})
    t.cases[0].refused.push_back({{{f32, {2, 3}}, {f32, {3, 4}}}, {"equation"}, {{"equation", wrong}}});
  return {t};
}

TEST(Matmul, broadcasts_leading_axes_and_takes_vectors) {
  auto of = [](const Extents& a, const Extents& b) { return built({counting(a), counting(b)}, [](auto v) { return std::vector{matmul(v[0], v[1])}; })[0]; };
  auto wanted = [](const char* equation, const Extents& a, const Extents& b) { return built({counting(a), counting(b)}, [&](auto v) { return std::vector{contract(equation, v[0], v[1])}; })[0]; };
  EXPECT_EQ(of({2, 3, 4, 5}, {3, 5, 6}), wanted("abij,bjk->abik", {2, 3, 4, 5}, {3, 5, 6}));
  EXPECT_EQ(of({4, 5}, {3, 5, 6}), wanted("ij,bjk->bik", {4, 5}, {3, 5, 6}));
  EXPECT_EQ(of({2, 1, 4, 5}, {3, 5, 6}), wanted("aij,bjk->abik", {2, 4, 5}, {3, 5, 6}));
  HostTensor both_ones = of({2, 1, 4, 5}, {1, 5, 6});
  EXPECT_EQ(both_ones.shape(), (Extents{2, 1, 4, 6}));
  EXPECT_EQ(of({5}, {3, 5, 6}), wanted("j,bjk->bk", {5}, {3, 5, 6}));
  EXPECT_EQ(of({4, 5}, {5}), wanted("ij,j->i", {4, 5}, {5}));
  EXPECT_EQ(of({5}, {5}), wanted("j,j->", {5}, {5}));
  EXPECT_THAT(refusal({{f32, {2, 4, 5}}, {f32, {3, 5, 6}}}, [](auto v) { return std::vector{matmul(v[0], v[1])}; }), testing::HasSubstr("[matmul]"));
}

}  // namespace belfry::test
