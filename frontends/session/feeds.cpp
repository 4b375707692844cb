#include <belfry/frontends/session/feeds.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace belfry {

namespace {

bool narrows(DType given, DType want) { return given == i64 && want == i32; }

/// Whether they are pictures as (rows, channels, height, width) for an input that has channels last.
bool channels_first(const Extents& given, const Shape& want) {
  return given.size() == 4 && want.size() == 4 && Dim(given[1]) == want[3] && Dim(given[2]) == want[1] && Dim(given[3]) == want[2];
}

/// Whether one has axes of 1 that the other has not, behind their first, and all else is the same.
bool same_but_ones(const Extents& given, const Shape& want) {
  Shape a, b;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (i == 0 || given[i] != 1) a.emplace_back(given[i]);
  for (std::size_t i = 0; i < want.size(); ++i)
    if (i == 0 || want[i] != Dim(1)) b.push_back(want[i]);
  return given.size() != want.size() && std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Dim& n, const Dim& d) { return d.symbolic() || n == d; });
}

/// The fed numbers in the input's shape, if they fill whole rows of it: C++ that makes it, else nothing.
std::string reshaped(const LocalType& given, const TensorType& want, const std::string& row_symbol) {
  const char* const type = want.dtype == f32 ? "float" : want.dtype == f64 ? "double" : want.dtype == i32 ? "std::int32_t" : want.dtype == i64 ? "std::int64_t" : nullptr;
  if (!type || given.dtype != want.dtype || given.shape.size() == want.shape.size()) return {};
  std::int64_t row = 1, symbols = 0;
  for (const Dim& d : want.shape) {
    if (d.symbolic() && d.symbol != row_symbol) return {};
    symbols += d.symbolic();
    if (d.factor < 1 || __builtin_mul_overflow(row, d.factor, &row)) return {};
  }
  const std::int64_t elements = given.elements();
  if (symbols > 1 || elements == 0 || elements % row || (symbols == 0 && elements != row)) return {};
  const Extents shape = extents_of(want.shape, elements / row);
  return fmt::format("; the same numbers: HostTensor::of<{0}>({{{1}}}, t.data<{0}>())", type, fmt::join(shape, ", "));
}

/// Whether a batch of some rows has this shape.
bool has_shape(const Extents& given, const Shape& want) {
  return given.size() == want.size() && std::equal(given.begin(), given.end(), want.begin(), [](std::int64_t n, const Dim& d) { return d.symbolic() || n == d.factor; });
}

bool is_fixed(const Graph& graph) {
  const std::vector<NodeId> inputs = graph.inputs();
  return std::none_of(inputs.begin(), inputs.end(), [&](NodeId id) { return !symbolic_axes(graph.node(id).types[0].shape).empty(); });
}

[[noreturn]] void refuse(const Graph& graph, const std::string& input, const LocalType& given, const TensorType& want) {
  std::string hint;
  if (channels_first(given.shape, want.shape)) hint = "; channels come last: (rows, height, width, channels)";
  else if (same_but_ones(given.shape, want.shape)) hint = "; axes of 1 are all that differs: reshape it";
  hint += reshaped(given, want, graph.row_symbol);
  if (given.shape.size() == want.shape.size() && !given.shape.empty() && given.shape[0] != want.shape[0].factor && is_fixed(graph))
    hint += fmt::format("; for any number of rows write {{kBatch, …}} ([\"{}\", …] in files) in its place", graph.row_symbol);
  if (given.dtype != want.dtype && !narrows(given.dtype, want.dtype) && has_shape(given.shape, want.shape)) hint += fmt::format("; converted(tensor, {0}), or numpy's astype, makes it {0}", name_of(want.dtype));
  if (given.dtype == u8 && want.dtype == f32 && want.shape.size() == 4) hint += "; pictures_of(tensor, size, pixels) makes of bytes what a run's pixels say";
  throw UserError(fmt::format("the feed '{}' is {}, but the input is {}{}", input, to_string(given), to_string(want), hint));
}

}  // namespace

void refuse_missing(const Node& input, const Batch& feeds, const std::string& why) {
  std::vector<std::string> given;
  for (const auto& [name, tensor] : feeds.all()) given.push_back(name);
  throw UserError(fmt::format("there is no feed for the input '{}' {}; {}{}", input.name, to_string(input.types[0]),
                              given.empty() ? "nothing is fed: each input wants a tensor of its name" : fmt::format("there are feeds for {}", fmt::join(given, ", ")), why));
}

std::int64_t rows_of(const Graph& graph, const Batch& feeds) {
  std::int64_t rows = -1;
  std::string from;
  for (NodeId id : graph.inputs()) {
    const Node& n = graph.node(id);
    auto feed = feeds.all().find(n.name);
    if (feed == feeds.all().end()) refuse_missing(n, feeds, {});
    const LocalType& given = feed->second->type();
    const TensorType& want = n.types[0];
    if ((given.dtype != want.dtype && !narrows(given.dtype, want.dtype)) || given.shape.size() != want.shape.size()) refuse(graph, n.name, given, want);
    for (std::size_t a = 0; a < want.shape.size(); ++a) {
      const Dim& d = want.shape[a];
      if (!d.symbolic()) {
        if (d.factor != given.shape[a]) refuse(graph, n.name, given, want);
        continue;
      }
      if (d.symbol != graph.row_symbol) continue;
      if (d.factor == 0 || given.shape[a] % d.factor) refuse(graph, n.name, given, want);
      std::int64_t here = given.shape[a] / d.factor;
      if (rows < 0) rows = here, from = n.name;
      if (here != rows) throw UserError(fmt::format("the feeds disagree about the batch: '{}' has {} rows, '{}' has {}", from, rows, n.name, here));
    }
  }
  if (rows == 0) throw UserError("the feeds have no rows: a batch has at least one");
  return std::max<std::int64_t>(rows, 1);
}

std::optional<Batch> narrowed(const Graph& graph, const Batch& feeds, std::map<std::string, HostTensor>& room) {
  std::optional<Batch> out;
  for (const auto& [name, tensor] : feeds.all()) {
    if (tensor->dtype() != i64) continue;
    const NodeId id = graph.find_node(name);
    if (id < 0 || graph.node(id).op->name != kInput || !narrows(i64, graph.node(id).types[0].dtype)) continue;
    const std::span<const std::int64_t> values = tensor->data<std::int64_t>();
    using Limits = std::numeric_limits<std::int32_t>;
    const auto wrong = std::find_if(values.begin(), values.end(), [](std::int64_t v) { return v < Limits::min() || v > Limits::max(); });
    if (wrong != values.end())
      throw UserError(fmt::format("the feed '{}' is i64 for an input of i32, which does not hold the {} in element {}", name, *wrong, wrong - values.begin()));
    if (!out) out = feeds;
    out->replace(name, room.insert_or_assign(name, converted(*tensor, i32)).first->second);
  }
  return out;
}

void check_written_out(const Graph& g, const Batch& feeds) {
  std::vector<std::string> inputs;
  for (NodeId id : g.inputs()) inputs.push_back(g.node(id).name);
  for (const auto& [name, tensor] : feeds.all()) {
    if (std::find(inputs.begin(), inputs.end(), name) != inputs.end()) continue;
    const std::string near = did_you_mean(name, inputs);
    throw UserError(fmt::format("the graph '{}' has no input '{}'{}", g.name, name, near.empty() ? fmt::format("; its inputs are: {}", fmt::join(inputs, ", ")) : near));
  }
}

}  // namespace belfry
