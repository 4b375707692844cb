#include <belfry/ops/scaled_dot_product_attention/packed_attention.h>

#include "tables.h"

namespace belfry::test {

OpTables packed_attention_cases() {
  struct Form {
    const char* name;
    Shape lead;  ///< before the places
    std::int64_t places;
    Dim heads = 2;
    std::vector<CaseInput> mask = {};
    Attributes attributes = {};
  };
  const Attributes causal = {{"causal", true}};
  OpTable forward{"packed_attention", {}}, gradient{"packed_attention_gradient", {}};
  for (const Form& f : {Form{"heads", {kBatch}, 3}, Form{"causal, by 0.5", {kBatch}, 3, 3, {}, {{"causal", true}, {"scale", 0.5}}}, Form{"keys that are padding", {kBatch}, 3, 2, {bits({kBatch, 1, 1, 3})}},
                        Form{"added per head", {kBatch}, 2, 2, {real({2, 2, 2})}}, Form{"causal, added per row", {kBatch}, 3, 2, {real({kBatch, 1, 3, 3})}, causal}, Form{"without rows", {}, 2},
                        Form{"rows of heads", {}, 2, kBatch, {real({kBatch, 1, 2})}}, Form{"two leading axes", {2, kBatch}, 2, 2, {bits({kBatch, 1, 1, 1})}}, Form{"rows of heads and more", {kBatch}, 2, kBatch}}) {
    auto with = [&](std::initializer_list<Dim> last) {
      Shape out = f.lead;
      out.insert(out.end(), last);
      return out;
    };
    const Shape qkv = with({f.places, 3, f.heads, 2}), y = with({f.places, f.heads, 2}), log_sum = with({f.heads, f.places}), scores = with({f.heads, f.places, f.places});
    CaseInput none = bits({1});
    none.given = false;
    const CaseInput& mask = f.mask.empty() ? none : f.mask[0];
    forward.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = {real(qkv), mask}, .outputs = {{f32, y}, {f32, log_sum}}, .exact_sums = false});
    // Logarithms above all scores: the weights are below 1.
    gradient.cases.push_back({.name = f.name, .attributes = f.attributes, .inputs = {real(qkv), real(y), {{f32, log_sum}, 8, 10}, real(y), mask}, .outputs = {{f32, qkv}, {f32, scores}}, .exact_sums = false});
  }
  // Along the rows nothing is split: the whole is read.
  forward.cases.push_back({.name = "rows are places", .inputs = {real({kBatch, 3, 1, 2})}, .outputs = {{f32, {kBatch, 1, 2}}, {f32, {1, kBatch}}}, .exact_sums = false});
  const TensorType qkv{f32, {kBatch, 4, 3, 2, 5}}, y{f32, {kBatch, 4, 2, 5}}, l{f32, {kBatch, 2, 4}};
  forward.cases[0].refused = {{{{f32, {kBatch, 4, 2, 2, 5}}}, {"qkv is (…, places, 3, heads, features), not (batch, 4, 2, 2, 5)"}},
                              {{{f32, {3, 2, 5}}}, {"qkv is (…, places, 3, heads, features)"}},
                              {{qkv, {boolean, {3, 3}}}, {"the mask must broadcast to (batch, 2, 4, 4)"}},
                              {{qkv, {i32, {4, 4}}}, {"the mask must be bool, or of qkv's dtype"}},
                              {{qkv}, {"scale", "[0, 1000000]"}, {{"scale", -1.0}}}};
  gradient.cases[0].refused = {{{qkv, y, y, y}, {"log_sum must be f32(batch, 2, 4)"}}, {{qkv, y, l, qkv}, {"y and dy must be"}}};
  return {forward, gradient};
}

}  // namespace belfry::test
