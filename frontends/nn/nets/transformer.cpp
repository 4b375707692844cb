#include <fmt/format.h>

#include <belfry/frontends/nn/attention.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/nn/norms.h>

namespace belfry::nn {

constexpr std::int64_t kMostBlocks = 1000;  // each is some 40 nodes: graph, file and plan grow with them

Value transformer(Value tokens, const TransformerOptions& o, SourceLine at) {
  if (tokens.rank() != 2 || tokens.shape()[1] != Dim(o.length)) throw UserError(fmt::format("[transformer] tokens must be (batch, {}), not {}", o.length, to_string(tokens.type())));
  if (o.heads < 1 || o.width % o.heads) throw UserError(fmt::format("[transformer] a width of {} cannot be shared by {} heads", o.width, o.heads));
  if (o.blocks < 0 || o.blocks > kMostBlocks) throw UserError(fmt::format("[transformer] {} blocks; there are from 0 to {}", o.blocks, kMostBlocks));
  Graph& g = *tokens.graph;
  SourceGuard line(g, at);
  auto dropped = [&](Value x) { return o.dropout > 0 ? dropout(x, {.rate = o.dropout}) : x; };
  Value x = embedding(tokens, {.rows = o.vocabulary, .size = o.width, .init = "normal", .init_value = 0.02, .name = "token_embedding"});
  x = dropped(x + variable(g, "position_embedding", {o.length, o.width}, {.init = "normal", .init_value = 0.01}));
  for (int i = 0; i < o.blocks; ++i) {
    const std::string prefix = fmt::format("block_{}_", i);
    Value y = layer_norm(x, {.epsilon = 1e-5, .name = prefix + "attention_norm"});
    x = x + dropped(multi_head_attention(y, y, {}, {.heads = o.heads, .key_size = o.width / o.heads, .causal = true, .packed = o.packed, .name = prefix + "attention"}));
    y = layer_norm(x, {.epsilon = 1e-5, .name = prefix + "mlp_norm"});
    y = dense(y, {.units = 4 * o.width, .activation = Activation::gelu, .name = prefix + "mlp_up"});
    x = x + dropped(dense(y, {.units = o.width, .name = prefix + "mlp_down"}));
  }
  x = layer_norm(x, {.epsilon = 1e-5, .name = "final_norm"});
  return dense(x, {.units = o.vocabulary, .bias = false, .kernel_init = {"normal", 0.02}, .name = "logits"});
}

}  // namespace belfry::nn
