#include <belfry/ops/random/random.h>

#include <cmath>
#include <numbers>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/graph_of.h>
#include <belfry/ops/loops.h>
#include <belfry/ops/random/philox.h>

namespace belfry {

namespace {

std::uint64_t seed_of(const Call& c, std::size_t input) { return static_cast<std::uint64_t>(c.inputs[input].as<std::int64_t>()[0]); }
std::uint32_t step_of(const Call& c, std::size_t input) { return static_cast<std::uint32_t>(c.inputs[input].as<std::int64_t>()[0]); }
std::uint32_t stream_of(const Call& c) { return static_cast<std::uint32_t>(c.attributes.integer("stream")); }

void check_scalars(InferContext& c, int first) {
  for (int i = first; i < first + 2; ++i)
    if (c.type(i) != TensorType{i64, {}}) c.fail("seed and step are scalars of i64");
}

OpDef source(const char* name, const char* low, const char* high, double (*draw)(const std::uint32_t words[4], int word)) {
  return {.name = name,
          .attributes = {{"shape", AttributeKind::shape}, {"dtype", f32}, {"stream", AttributeKind::integer}, {low, 0.0}, {high, 1.0}},
          .inputs = {"seed", "step"},
          .infer = [](InferContext& c) {
            check_scalars(c, 0);
            if (!is_float(c.attributes.dtype("dtype"))) c.fail("draws f32 or f64");
            return std::vector<TensorType>{{c.attributes.dtype("dtype"), c.attributes.shape("shape")}};
          },
          .reference = [=](const Call& c) {
            bool normal = std::string_view(low) == "mean";
            double a = c.attributes.real(low), b = normal ? c.attributes.real(high) : c.attributes.real(high) - a;
            visit_float(c.outputs[0].type.dtype, [&]<class T>() {
              auto y = c.outputs[0].as<T>();
              for_each_random(c.output_types[0].shape, c.outputs[0].type.shape, c.share.first_row, seed_of(c, 0), step_of(c, 1), stream_of(c),
                              [&](std::size_t at, const std::uint32_t words[4], int word) { y[at] = static_cast<T>(a + b * draw(words, word)); });
            });
          },
          .gradient = no_gradient("a random draw depends on no input"),
          .split = split_of_source(),
          .random = true};
}

void dropout_reference(const Call& c) {
  float rate = static_cast<float>(c.attributes.real("rate"));
  visit_float(c.dtype(), [&]<class T>() {
    auto x = c.inputs[0].as<T>();
    auto y = c.outputs[0].as<T>();
    T scale = T{1} / (T{1} - static_cast<T>(c.attributes.real("rate")));
    for_each_random(c.output_types[0].shape, c.outputs[0].type.shape, c.share.first_row, seed_of(c, 1), step_of(c, 2), stream_of(c),
                    [&](std::size_t at, const std::uint32_t words[4], int word) { y[at] = uniform_of(words[word]) >= rate ? x[at] * scale : T{0}; });
  });
}

/// Rows of x stay; by other axes than the first row axis the key would be another, so x is read whole.
Split split_dropout(const SplitContext& c) {
  std::vector<int> axes = symbolic_axes(c.inputs[0].shape);
  SplitState s = c.states[0];
  if (s.is_partial()) s = kReplicated;
  if (s.is_rows() && s.axis != axes[0]) s = rows(axes[0]);
  return {{s, kReplicated, kReplicated}, {s}};
}

}  // namespace

std::int64_t stream_of(const std::string& name) {
  std::uint32_t h = 2166136261u;  // FNV-1a
  for (unsigned char c : name) h = (h ^ c) * 16777619u;
  return h;
}

void for_each_random(const Shape& type, const Extents& shape, std::int64_t first_row, std::uint64_t seed, std::uint32_t step, std::uint32_t stream,
                     const std::function<void(std::size_t at, const std::uint32_t words[4], int word)>& f) {
  std::vector<int> axes = symbolic_axes(type);
  std::size_t axis = axes.empty() ? 0 : static_cast<std::size_t>(axes[0]);
  std::int64_t factor = axes.empty() ? 1 : type[axis].factor;
  std::int64_t along = axes.empty() ? 1 : shape[axis];
  std::int64_t outer = axes.empty() ? 1 : product(shape, 0, axis), inner = axes.empty() ? elements(shape) : product(shape, axis + 1, shape.size());
  for (std::int64_t k = 0; k < along; ++k) {
    std::uint32_t row = static_cast<std::uint32_t>(axes.empty() ? 0 : first_row + k / factor);
    std::int64_t index = (k % factor) * outer * inner, in_block = -1;
    Words words{};
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i, ++index) {
        if (index / 4 != in_block) words = philox(seed, {static_cast<std::uint32_t>(in_block = index / 4), row, step, stream});
        f(static_cast<std::size_t>((o * along + k) * inner + i), words.data(), static_cast<int>(index % 4));
      }
    }
  }
}

std::vector<OpDef> random_defs() {
  std::vector<OpDef> out;
  out.push_back(source("random_uniform", "low", "high", [](const std::uint32_t words[4], int word) { return static_cast<double>(uniform_of(words[word])); }));
  out.push_back(source("random_normal", "mean", "deviation", normal_of));
  out.push_back({.name = "dropout",
                 .attributes = {AttributeDef("rate", AttributeKind::real).between(0, 0.999), {"stream", AttributeKind::integer}},
                 .inputs = {"x", "seed", "step"},
                 .infer = [](InferContext& c) {
                   c.need_float(0);
                   check_scalars(c, 1);
                   return c.same_type_as(0);
                 },
                 .reference = dropout_reference,
                 .gradient = [](GradientContext& g) {  // the same words draw the same mask
                   return std::vector<Value>{emit("dropout", {g.output_gradient(), g.input(1), g.input(2)}, g.attributes, {}), {}, {}};
                 },
                 .split = split_dropout,
                 .inference = [](GradientContext& g) { return std::vector<Value>{g.input(0)}; },
                 .in_place = {{0, 0}},
                 .random = true,
                 .zero_preserving = true,
                 .precision = Precision::follow});
  return out;
}

/// Streams differ as the names of the nodes do.
static std::int64_t own_stream(const Graph& graph, const char* op, const std::string& name) {
  if (name.empty()) return stream_of(graph.free_name(op));
  return stream_of(graph.cursor.scope.empty() ? name : graph.cursor.scope + "/" + name);
}

static Value draw(const char* op, const char* low, const char* high, Value seed, Value step, Shape shape, const RandomOptions& o, SourceLine at) {
  Attributes attributes = {{"shape", std::move(shape)}, {"dtype", o.dtype}, {"stream", own_stream(graph_of(seed, op, at), op, o.name)}, {low, o.low}, {high, o.high}};
  return emit(op, {seed, step}, attributes, at, o.name);
}

Value random_uniform(Value seed, Value step, Shape shape, const RandomOptions& o, SourceLine at) { return draw("random_uniform", "low", "high", seed, step, std::move(shape), o, at); }
Value random_normal(Value seed, Value step, Shape shape, const RandomOptions& o, SourceLine at) { return draw("random_normal", "mean", "deviation", seed, step, std::move(shape), o, at); }

Value dropout(Value x, Value seed, Value step, double rate, const std::string& name, SourceLine at) {
  return emit("dropout", {x, seed, step}, {{"rate", rate}, {"stream", own_stream(graph_of(x, "dropout", at), "dropout", name)}}, at, name);
}

FanScales fan_scales(const Extents& shape) {
  const std::int64_t receptive = shape.size() > 2 ? product(shape, 0, shape.size() - 2) : 1;
  const double fan_in = static_cast<double>(shape.size() < 2 ? elements(shape) : receptive * shape[shape.size() - 2]);
  const double fan_out = static_cast<double>(shape.empty() ? 1 : shape.size() < 2 ? elements(shape) : receptive * shape.back());
  return {std::sqrt(6 / (fan_in + fan_out)), std::sqrt(2 / fan_in)};
}

HostTensor initial_value(const Node& variable, std::uint64_t seed) {
  const Attributes& a = variable.attributes;
  const std::string& init = a.text("init");
  double value = a.real("init_value");
  Extents shape = extents_of(a.shape("shape"), 1);
  HostTensor out(a.dtype("dtype"), shape);
  if (init == "seed") {
    out.data<std::int64_t>()[0] = static_cast<std::int64_t>(seed);
    return out;
  }
  const auto [limit, deviation] = fan_scales(shape);
  auto stream = static_cast<std::uint32_t>(stream_of(averaged_by(variable.name)));  // an average begins where its variable does
  auto words_of = [&](std::size_t i, std::uint32_t attempt) { return philox(seed, {static_cast<std::uint32_t>(i / 4), 0xFFFFFFFFu, attempt, stream}); };
  // Four elements share a draw.
  Words words{};
  auto uniform = [&](std::size_t i) {
    if (i % 4 == 0) words = words_of(i, 0);
    return 2 * static_cast<double>(uniform_of(words[i % 4])) - 1;
  };
  auto normal = [&](std::size_t i) {
    if (i % 4 == 0) words = words_of(i, 0);
    return normal_of(words.data(), static_cast<int>(i % 4));
  };
  auto truncated = [&](std::size_t i) {
    double z = normal(i);
    for (std::uint32_t attempt = 1; std::abs(z) > 2; ++attempt) {
      Words again = words_of(i, attempt);
      z = normal_of(again.data(), static_cast<int>(i % 4));
    }
    return z;
  };
  auto fill = [&](auto at) {
    visit_stored(out.dtype(), [&]<class T>() {
      auto to = out.data<T>();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(at(i));
    });
  };
  if (init == "ones") fill([](std::size_t) { return 1.0; });
  else if (init == "constant") fill([&](std::size_t) { return value; });
  else if (init == "uniform") fill([&](std::size_t i) { return uniform(i) * value; });
  else if (init == "glorot_uniform") fill([&](std::size_t i) { return uniform(i) * limit; });
  else if (init == "normal") fill([&](std::size_t i) { return normal(i) * value; });
  else if (init == "he_normal") fill([&](std::size_t i) { return normal(i) * deviation; });
  else if (init == "truncated_normal") fill([&](std::size_t i) { return truncated(i) * value; });
  return out;
}

}  // namespace belfry
