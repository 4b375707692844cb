#include <belfry/ops/tower_mean/tower_mean.h>

#include <cstring>

#include <belfry/graph/split_rules.h>

namespace belfry {

OpDef tower_mean_def() {
  return {.name = "tower_mean",
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            c.need_float(0);
            return c.same_type_as(0);
          },
          .reference = [](const Call& c) { std::memmove(c.outputs[0].data, c.inputs[0].data, static_cast<std::size_t>(c.outputs[0].type.bytes())); },
          .gradient = no_gradient("statistics are not differentiated"),
          .split = split_of_join(),
          .joins_towers = true};
}

Value tower_mean(Value x, SourceLine at) { return emit("tower_mean", {x}, {}, at); }

}  // namespace belfry
