#include <belfry/graph/graph.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <belfry/graph/contexts.h>
#include <belfry/graph/halves.h>

namespace belfry {

// ---------------------------------------------------------------- names

bool is_legal_name(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  auto more = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '/' || c == '-'; };
  return !name.empty() && name.size() <= 1024 && letter(name[0]) && std::all_of(name.begin(), name.end(), more);
}

/// Names that plans give: tower_<n>/x, fetch/x, and what expand and lower put in behind x; tower_<n> too, of which training would make tower_<n>/x.
static bool is_reserved(std::string_view name) {
  if (name.starts_with("fetch/") || name.find("..") != name.npos) return true;
  if (auto dot = name.rfind('.'); dot != name.npos) {
    std::string_view suffix = name.substr(dot + 1);
    suffix = suffix.substr(0, suffix.find_last_not_of("0123456789") + 1);
    constexpr std::string_view kTaken = ".again.aggregate.copy.gather.group.partials.pre.second.split.store.whole.";
    if (kTaken.find("." + std::string(suffix) + ".") != kTaken.npos) return true;
  }
  if (!name.starts_with("tower_")) return false;
  auto end = name.find_first_not_of("0123456789", 6);
  return end == name.npos ? name.size() > 6 : end > 6 && name[end] == '/';
}

static std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t here = std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = std::exchange(row[j + 1], here);
    }
  }
  return row[b.size()];
}

/// What other programs call it.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"float", "f32"}, {"float32", "f32"}, {"double", "f64"}, {"float64", "f64"}, {"int", "i32"}, {"int32", "i32"}, {"long", "i64"}, {"int64", "i64"}, {"byte", "u8"}, {"uint8", "u8"}, {"half", "f16"}, {"float16", "f16"}, {"bfloat16", "bf16"}, {"boolean", "bool"},
    {"lr", "learning_rate"}, {"eps", "epsilon"}, {"xavier", "glorot_uniform"}, {"xavier_uniform", "glorot_uniform"}, {"cuda", "gpu"}, {"he", "he_normal"}, {"kaiming_normal", "he_normal"}, {"gaussian", "normal"},
};

static std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

std::vector<std::string> near_names(std::string_view wrong, const std::vector<std::string>& known) {
  const std::string given = lower(wrong);
  for (const auto& [theirs, ours] : kElsewhere)
    if (given == theirs && std::find(known.begin(), known.end(), ours) != known.end()) return {std::string(ours)};
  std::vector<std::pair<std::size_t, std::string>> near;
  if (wrong.size() <= 200)
    for (const std::string& k : known)
      if (k.size() <= 200)
        if (std::size_t d = edit_distance(given, lower(k)); d <= std::max<std::size_t>(2, wrong.size() / 3)) near.emplace_back(d, k);
  std::sort(near.begin(), near.end());
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min<std::size_t>(near.size(), 3); ++i) out.push_back(near[i].second);
  return out;
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& known) {
  const std::vector<std::string> near = near_names(wrong, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, ", "));
}

bool reads_shape_only(const Node& n, std::size_t i) { return n.op->inputs[std::min(i, n.op->inputs.size() - 1)].shape_only; }

std::string to_string(Role role) {
  constexpr const char* kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(role)];
}

Role parse_role(std::string_view text) {
  for (Role r : {Role::forward, Role::backward, Role::update})
    if (to_string(r) == text) return r;
  throw UserError(fmt::format("role is '{}'; it can be forward, backward or update", text));
}

// ---------------------------------------------------------------- ops

void OpSet::add(OpDef def) {
  if (find(def.name)) throw UserError(fmt::format("an op '{}' is there already", def.name));
  if (!def.stores && def.precision != Precision::full) def.reference = taking_halves(std::move(def.reference));
  defs_.push_back(std::make_unique<OpDef>(std::move(def)));
}

const OpDef* OpSet::find(std::string_view name) const {
  for (const auto& d : defs_)
    if (d->name == name) return d.get();
  return nullptr;
}

const OpDef& OpSet::at(std::string_view name) const {
  if (const OpDef* d = find(name)) return *d;
  std::vector<std::string> names;
  for (const auto& d : defs_) names.push_back(d->name);
  throw UserError(fmt::format("there is no op '{}'{}; belfry show --ops lists those that there are; for an op of your own, Builder b(name, ops) with the set that has it, and for files a program that gives its library to cli_main (docs/add_an_op.md)", name, did_you_mean(name, names)));
}

// ---------------------------------------------------------------- graph

Graph::Graph(std::shared_ptr<const OpSet> ops, std::string name) : name(std::move(name)), ops_(std::move(ops)) {}

std::string Graph::free_name(const std::string& wish) const {
  std::string full = cursor.scope.empty() ? wish : cursor.scope + "/" + wish;
  auto free = [&](const std::string& name) { return !by_name_.contains(name) && (!cursor.avoid || cursor.avoid->find_node(name) < 0); };
  if (free(full)) return full;
  // Names are never given back; those of `avoid` may be free the next time.
  int other = 0, &tried = cursor.avoid ? other : tried_[full];
  for (int i = tried + 1;; ++i)
    if (std::string next = fmt::format("{}_{}", full, i); free(next)) {
      tried = i - 1;
      return next;
    }
}

bool Graph::has_below(const std::string& name) const {
  auto at = by_name_.lower_bound(name + "/");
  return at != by_name_.end() && at->first.starts_with(name + "/");
}

std::string Graph::free_scope(const std::string& wish) const {
  std::string full = cursor.scope.empty() ? wish : cursor.scope + "/" + wish;
  auto taken = [&](const std::string& name) { return by_name_.contains(name) || has_below(name); };
  if (!taken(full)) return full;
  for (int i = 1;; ++i)
    if (std::string next = fmt::format("{}_{}", full, i); !taken(next)) return next;
}

static void check_count(const OpDef& op, std::size_t given, const InferContext& context) {
  std::size_t least = 0;
  bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (!op.inputs[i].optional) least = i + 1;  // optional ones before it have their places, if empty ones
  if (given < least || (!variadic && given > op.inputs.size()))
    context.fail(fmt::format("takes {}{} inputs, not {}", variadic ? "at least " : "", least, given));
}

Value Graph::add(std::string_view op, const std::vector<Value>& inputs, const Attributes& attributes, const std::string& wish) {
  if (!ops_) throw UserError(fmt::format("[{}] this graph was built or moved: nothing can be added to it, and its Values stand for nothing any more", op));
  return add(ops_->at(op), inputs, attributes, wish);
}

Value Graph::add(const OpDef& op, const std::vector<Value>& inputs, const Attributes& attributes, const std::string& wish) {
  Node n;
  n.op = &op;
  n.source = cursor.source;
  if (wish.empty()) n.name = free_name(op.name);
  else n.name = cursor.scope.empty() ? wish : cursor.scope + "/" + wish;
  std::string where = fmt::format("[{}] node '{}'", op.name, n.name);
  if (!is_legal_name(n.name)) throw UserError(fmt::format("{}: a name is made of letters, digits, '_', '.', '/', '-' and begins with a letter or '_'", where));
  if (is_reserved(n.name)) throw UserError(fmt::format("{}: names that are tower_<n>, or begin with tower_<n>/ or fetch/, or end with .again, .aggregate, .copy, .gather, .group, .partials, .pre, .second, .split, .store or .whole, or have two dots in a row, are reserved for plans", where));
  if (auto taken = by_name_.find(n.name); taken != by_name_.end()) {
    std::string first = node(taken->second).source.text(), second = n.source.text();
    throw UserError(fmt::format("{}: the name is taken{}{}", where, first.empty() ? "" : " at " + first, second.empty() ? "" : "; taken again at " + second));
  }
  n.attributes = checked(op.attributes, attributes, where + ":");
  for (const Value& v : inputs) {
    if (v && (v.graph != this || v.id.node >= size())) throw UserError(fmt::format("{}: its input '{}' belongs to another graph, '{}'; this one is '{}'", where, v.name(), v.graph->name, name));
    n.inputs.push_back(v ? v.id : ValueId{});
  }
  InferContext context(*this, op, n.name, n.attributes, n.inputs);
  check_count(op, n.inputs.size(), context);
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    if (!n.inputs[i].valid() && !op.inputs[std::min(i, op.inputs.size() - 1)].optional)
      context.fail(fmt::format("needs its input '{}'", op.inputs[std::min(i, op.inputs.size() - 1)].name));
  n.types = inferred_types(context);
  for (const TensorType& t : n.types)
    for (const Dim& d : t.shape)
      if (d.factor < 0) context.fail(fmt::format("would make {}, which has a negative size", to_string(t)));
  for (const TensorType& t : n.types)
    if (factor_of(t.shape) > kMostElements) context.fail(fmt::format("would make {}, which has more than 2^48 elements", to_string(t)));
  n.device = cursor.device;
  n.of = cursor.of;
  n.role = cursor.role;
  NodeId id = size();
  for (ValueId v : n.inputs)
    if (v.valid())
      if (auto& r = readers_[static_cast<std::size_t>(v.node)]; r.empty() || r.back() != id) r.push_back(id);
  by_name_.emplace(n.name, id);
  nodes_.push_back(std::move(n));
  readers_.emplace_back();
  return {this, {id, 0}};
}

std::string Graph::name_of(ValueId v) const {
  const std::string& name = node(v.node).name;
  return v.output ? fmt::format("{}:{}", name, v.output) : name;
}

NodeId Graph::find_node(std::string_view name) const {
  auto at = by_name_.find(name);
  return at == by_name_.end() ? -1 : at->second;
}

std::optional<ValueId> Graph::find(std::string_view name) const {
  int output = 0;
  if (auto colon = name.rfind(':'); colon != name.npos) {
    std::string_view digits = name.substr(colon + 1);
    if (digits.empty() || digits.size() > 3 || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
    output = std::stoi(std::string(digits));
    name = name.substr(0, colon);
  }
  NodeId id = find_node(name);
  if (id < 0 && output == 0)
    if (auto alias = aliases.find(std::string(name)); alias != aliases.end()) return alias->second;
  if (id < 0 || output >= static_cast<int>(node(id).types.size())) return {};
  return ValueId{id, output};
}

ValueId Graph::at(std::string_view name) const {
  if (auto v = find(name)) return *v;
  std::vector<std::string> names;
  for (const Node& n : nodes_) names.push_back(n.name);
  throw UserError(fmt::format("there is no value '{}' in the graph '{}'{}", name, this->name, did_you_mean(name, names)));
}

std::vector<NodeId> Graph::of_op(std::string_view op) const {
  std::vector<NodeId> out;
  for (NodeId i = 0; i < size(); ++i)
    if (node(i).op->name == op) out.push_back(i);
  return out;
}

/// The graph of a Value that a user may have got wrong.
static const Graph& checked_graph(const Value& v) {
  if (!v) throw UserError("an empty Value has no type and no name: give one that an input, a layer or an op made");
  if (v.id.node < 0 || v.id.node >= v.graph->size()) throw UserError("this Value's graph was built or moved: make Sessions of the graph that build() gave, and new Values by a new Builder");
  return *v.graph;
}

const TensorType& Value::type() const { return checked_graph(*this).type(id); }
std::vector<Value> Value::outputs() const {
  std::vector<Value> out;
  for (std::size_t k = 0; k < checked_graph(*this).node(id.node).types.size(); ++k) out.push_back(output(static_cast<int>(k)));
  return out;
}
std::string Value::name() const { return checked_graph(*this).name_of(id); }

// ---------------------------------------------------------------- inference

InferContext::InferContext(const Graph& graph, const OpDef& op, std::string name, const Attributes& attributes, const std::vector<ValueId>& inputs)
    : graph(graph), op(op), name(std::move(name)), attributes(attributes), inputs(inputs) {
  for (ValueId v : inputs) {
    types_.push_back(v.valid() ? graph.type(v) : TensorType{});
    bool counts = op.takes_halves() || (!op.inputs.empty() && op.inputs[std::min(types_.size(), op.inputs.size()) - 1].shape_only);
    if (!op.stores && counts && is_half(types_.back().dtype)) types_.back().dtype = f32;
  }
}

std::vector<int> axes_from_front(const Integers& axes, int rank) {
  std::vector<int> out;
  for (std::int64_t a : axes) out.push_back(from_front(a, rank));
  std::sort(out.begin(), out.end());
  return out;
}

int InferContext::axis(std::string_view attribute, int i) const {
  std::int64_t given = attributes.integer(attribute);
  if (given < -rank(i) || given >= rank(i)) fail(fmt::format("{} {} is out of range for shape {}", attribute, given, to_string(std::span(shape(i)))));
  return from_front(given, rank(i));
}

std::vector<int> InferContext::axes(std::string_view attribute, int i, bool all) const {
  Integers given = attributes.integers(attribute);
  if (given.empty() && all)
    for (int a = 0; a < rank(i); ++a) given.push_back(a);
  for (std::int64_t a : given)
    if (a < -rank(i) || a >= rank(i)) fail(fmt::format("{} has {}, out of range for shape {}", attribute, a, to_string(std::span(shape(i)))));
  std::vector<int> out = axes_from_front(given, rank(i));
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) fail(fmt::format("{} names an axis twice", attribute));
  return out;
}

void InferContext::need_float(int i) const {
  if (!is_float(dtype(i))) fail(fmt::format("input {} must be f32 or f64, not {}", i, belfry::name_of(dtype(i))));
}

void InferContext::need_integer(int i) const {
  if (dtype(i) != i32 && dtype(i) != i64 && dtype(i) != u8) fail(fmt::format("input {} must hold integers, not {}", i, belfry::name_of(dtype(i))));
}

void InferContext::need_same_dtype() const {
  for (int i = 1; i < count(); ++i)
    if (has(i) && dtype(i) != dtype(0)) fail(fmt::format("inputs have the dtypes {} and {}", belfry::name_of(dtype(0)), belfry::name_of(dtype(i))));
}

void InferContext::need_rank(int i, int wanted) const {
  if (rank(i) != wanted) fail(fmt::format("input {} must have {} axes, not the shape {}", i, wanted, to_string(std::span(shape(i)))));
}

Shape InferContext::broadcast() const {
  std::vector<Shape> shapes;
  for (int i = 0; i < count(); ++i) shapes.push_back(shape(i));
  Shape out;
  if (belfry::broadcast(shapes, out)) return out;
  std::string list;
  for (const Shape& s : shapes) list += (list.empty() ? "" : " and ") + to_string(std::span(s));
  fail("shapes " + list + " do not broadcast");
}

void InferContext::fail(const std::string& message) const {
  std::string out = fmt::format("[{}] {}; node '{}'", op.name, message, name);
  for (int i = 0; i < count(); ++i) {
    if (!has(i)) continue;
    ValueId v = inputs[static_cast<std::size_t>(i)];
    // An op without inputs may have been given one.
    const std::string input = op.inputs.empty() ? "?" : op.inputs[std::min(static_cast<std::size_t>(i), op.inputs.size() - 1)].name;
    out += fmt::format(", input '{}' {} from '{}'{}", input, to_string(graph.type(v)), graph.name_of(v), graph.node(v.node).source.aside());
  }
  throw UserError(out);
}

}  // namespace belfry
