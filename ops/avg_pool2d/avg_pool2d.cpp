#include <belfry/ops/avg_pool2d/avg_pool2d.h>

#include <algorithm>

#include <belfry/ops/build.h>
#include <belfry/ops/linear_pair.h>
#include <belfry/ops/pools.h>

namespace belfry {

namespace {

/// `at` says where an element of `from` goes: to = Σ from / count.
template <class At>
void spread_means(const Call& c, const Extents& x, At at) {
  visit_float(c.dtype(), [&]<class T>() {
    auto from = c.inputs[0].as<T>();
    auto to = c.outputs[0].as<T>();
    std::vector<double> sums(to.size());
    for_each_pooled(c.attributes, x, [&](std::size_t at_y, std::size_t at_x, std::int64_t, std::int64_t count) {
      auto [source, target] = at(at_y, at_x);
      sums[target] += static_cast<double>(from[source]) / static_cast<double>(count);
    });
    std::transform(sums.begin(), sums.end(), to.begin(), [](double v) { return static_cast<T>(v); });
  });
}

void forward(const Call& c) {
  spread_means(c, c.inputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_x, at_y); });
}
void gradient(const Call& c) {
  spread_means(c, c.outputs[0].type.shape, [](std::size_t at_y, std::size_t at_x) { return std::pair(at_y, at_x); });
}

void need_picture(Value x, const char* what, SourceLine at) {
  if (x.rank() != 4) throw UserError("[" + std::string(what) + "] x must have 4 axes (n, h, w, c), not " + to_string(x.type()) + (at.file ? " at " + at.text() : ""));
}

}  // namespace

std::vector<OpDef> avg_pool2d_defs() { return linear_pair({"avg_pool2d", pool_attributes(), pooled, forward, gradient, pool_flops}); }

Value avg_pool2d(Value x, const AvgPool2dOptions& o, SourceLine at) {
  return emit("avg_pool2d", {x}, {{"window", o.window}, {"strides", o.strides}, {"padding", o.padding}, {"dilations", o.dilations}, {"pads", o.pads}}, at);
}

Value global_avg_pool2d(Value x, bool keep, SourceLine at) {
  need_picture(x, "global_avg_pool2d", at);
  return reduce_mean(x, {{1, 2}, keep}, at);
}

Value global_max_pool2d(Value x, bool keep, SourceLine at) {
  need_picture(x, "global_max_pool2d", at);
  return reduce_max(x, {{1, 2}, keep}, at);
}

}  // namespace belfry
