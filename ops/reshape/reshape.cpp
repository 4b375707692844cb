#include <belfry/ops/reshape/reshape.h>

#include <algorithm>
#include <cstring>

#include <belfry/graph/split_rules.h>

namespace belfry {

namespace {

/// Factor and symbols of the element count, to compare shapes whose symbols are not bound.
std::pair<std::int64_t, std::vector<std::string>> count(const Shape& shape) {
  std::pair<std::int64_t, std::vector<std::string>> out{factor_of(shape), {}};
  for (const Dim& d : shape)
    if (d.symbolic()) out.second.push_back(d.symbol);
  std::sort(out.second.begin(), out.second.end());
  return out;
}

}  // namespace

OpDef reshape_def() {
  return {.name = "reshape",
          .attributes = {{"shape", AttributeKind::shape}},
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            const Shape& to = c.attributes.shape("shape");
            if (count(to) != count(c.shape(0))) c.fail("cannot bring " + to_string(std::span(c.shape(0))) + " into the shape " + to_string(std::span(to)));
            return std::vector<TensorType>{{c.dtype(0), to}};
          },
          .reference = [](const Call& c) {
            if (c.outputs[0].type.elements()) std::memmove(c.outputs[0].data, c.inputs[0].data, static_cast<std::size_t>(c.outputs[0].type.bytes()));
          },
          .gradient = [](GradientContext& g) { return std::vector<Value>{reshape(g.output_gradient(), g.input(0).shape())}; },
          .split = split_reshape(),
          .in_place = {{0, 0}},
          .zero_preserving = true,
          .stores = true,
          .exact = true};
}

Value reshape(Value x, Shape shape, SourceLine at) { return emit("reshape", {x}, {{"shape", std::move(shape)}}, at); }

Value flatten(Value x, SourceLine at) {
  if (x.rank() < 2) return x;
  std::int64_t rest = 1;
  for (std::size_t i = 1; i < x.shape().size(); ++i) {
    if (x.shape()[i].symbolic()) throw UserError("[flatten] axis " + std::to_string(i) + " of " + to_string(std::span(x.shape())) + " holds a symbol; use reshape");
    rest *= x.shape()[i].factor;
  }
  return reshape(x, {x.shape()[0], rest}, at);
}

namespace {

/// Which of `rank` axes are named. UserError for one that is out of range or named twice.
std::vector<bool> named(const char* op, const Integers& axes, std::size_t rank) {
  std::vector<bool> out(rank, false);
  auto most = static_cast<std::int64_t>(rank);
  for (std::int64_t a : axes) {
    if (a < -most || a >= most) throw UserError("[" + std::string(op) + "] axis " + std::to_string(a) + " is out of range for " + std::to_string(rank) + " axes");
    auto at = static_cast<std::size_t>(from_front(a, static_cast<int>(rank)));
    if (out[at]) throw UserError("[" + std::string(op) + "] axis " + std::to_string(a) + " is named twice");
    out[at] = true;
  }
  return out;
}

}  // namespace

Value squeeze(Value x, const Integers& axes, SourceLine at) {
  const Shape& from = x.shape();
  std::vector<bool> gone = named("squeeze", axes, from.size());
  Shape to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (axes.empty()) gone[i] = from[i] == Dim(1);
    if (gone[i] && from[i] != Dim(1)) throw UserError("[squeeze] axis " + std::to_string(i) + " of '" + x.name() + "' is " + to_string(from[i]) + ", not 1");
    if (!gone[i]) to.push_back(from[i]);
  }
  return to == from ? x : reshape(x, to, at);
}

Value expand_dims(Value x, const Integers& axes, SourceLine at) {
  const Shape& from = x.shape();
  std::vector<bool> fresh = named("expand_dims", axes, from.size() + axes.size());
  Shape to;
  std::size_t next = 0;
  for (bool f : fresh) to.push_back(f ? Dim(1) : from[next++]);
  return axes.empty() ? x : reshape(x, to, at);
}

}  // namespace belfry
