#include <belfry/graph/attributes.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include <belfry/graph/graph.h>

namespace belfry {

AttributeValue::AttributeValue() : AttributeVariant(false) {}
AttributeValue::AttributeValue(bool v) : AttributeVariant(v) {}
AttributeValue::AttributeValue(int v) : AttributeVariant(std::int64_t{v}) {}
AttributeValue::AttributeValue(std::int64_t v) : AttributeVariant(v) {}
AttributeValue::AttributeValue(double v) : AttributeVariant(v) {}
AttributeValue::AttributeValue(float v) : AttributeVariant(static_cast<double>(v)) {}
AttributeValue::AttributeValue(const char* v) : AttributeVariant(std::string(v)) {}
AttributeValue::AttributeValue(std::string v) : AttributeVariant(std::move(v)) {}
AttributeValue::AttributeValue(std::string_view v) : AttributeVariant(std::string(v)) {}
AttributeValue::AttributeValue(Integers v) : AttributeVariant(std::move(v)) {}
AttributeValue::AttributeValue(Reals v) : AttributeVariant(std::move(v)) {}
AttributeValue::AttributeValue(DType v) : AttributeVariant(v) {}
AttributeValue::AttributeValue(Shape v) : AttributeVariant(std::move(v)) {}
AttributeValue::AttributeValue(HostTensor v) : AttributeVariant(std::make_shared<const HostTensor>(std::move(v))) {}
AttributeValue::AttributeValue(const AttributeValue&) = default;
AttributeValue::AttributeValue(AttributeValue&&) noexcept = default;
AttributeValue& AttributeValue::operator=(const AttributeValue&) = default;
AttributeValue& AttributeValue::operator=(AttributeValue&&) noexcept = default;
AttributeValue::~AttributeValue() = default;

AttributeDef::AttributeDef(std::string name, AttributeValue fallback) : name(std::move(name)), kind(fallback.kind()), fallback(std::move(fallback)) {}
AttributeDef::AttributeDef(std::string name, AttributeKind kind) : name(std::move(name)), kind(kind) {}
AttributeDef::AttributeDef(const AttributeDef&) = default;
AttributeDef::AttributeDef(AttributeDef&&) noexcept = default;
AttributeDef& AttributeDef::operator=(const AttributeDef&) = default;
AttributeDef& AttributeDef::operator=(AttributeDef&&) noexcept = default;
AttributeDef::~AttributeDef() = default;


std::string_view name_of(AttributeKind kind) {
  constexpr std::string_view kNames[] = {"bool", "integer", "float", "string", "list of integers", "list of floats", "dtype", "shape", "tensor"};
  return kNames[static_cast<int>(kind)];
}

bool AttributeValue::operator==(const AttributeValue& other) const {
  const auto* a = std::get_if<TensorRef>(this);
  const auto* b = std::get_if<TensorRef>(&other);
  if (a && b) return **a == **b;
  // Bitwise for floats, so that nan equals itself and -0 differs from 0.
  auto same = [](double p, double q) { return std::bit_cast<std::uint64_t>(p) == std::bit_cast<std::uint64_t>(q); };
  if (const auto* x = std::get_if<double>(this))
    if (const auto* y = std::get_if<double>(&other)) return same(*x, *y);
  if (const auto* x = std::get_if<Reals>(this))
    if (const auto* y = std::get_if<Reals>(&other)) return x->size() == y->size() && std::equal(x->begin(), x->end(), y->begin(), same);
  return static_cast<const AttributeVariant&>(*this) == static_cast<const AttributeVariant&>(other);
}

namespace {

struct Printer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return "\"" + v + "\""; }
  std::string operator()(const Integers& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const Reals& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(DType v) const { return std::string(name_of(v)); }
  std::string operator()(const Shape& v) const { return to_string(std::span(v)); }
  std::string operator()(const TensorRef& v) const { return (*this)(*v); }
  std::string operator()(const HostTensor& v) const {
    std::string out = to_string(v.type()) + "{";
    for (std::int64_t i = 0; i < std::min<std::int64_t>(v.elements(), 8); ++i)
      out += (i ? ", " : "") + visit_stored(v.dtype(), [&]<class T>() {
        auto element = v.data<T>()[static_cast<std::size_t>(i)];
        if constexpr (is_half(dtype_of<T>())) return fmt::format("{}", static_cast<float>(element));
        else return fmt::format("{}", element);
      });
    return out + (v.elements() > 8 ? ", …}" : "}");
  }
};

void check_value(const AttributeDef& def, const AttributeValue& value, const std::string& where) {
  if (const auto* text = std::get_if<std::string>(&value); text && !def.choices.empty())
    if (std::find(def.choices.begin(), def.choices.end(), *text) == def.choices.end())
      throw UserError(fmt::format("{} attribute '{}' is \"{}\"; it can be {}{}", where, def.name, *text, fmt::join(def.choices, ", "), did_you_mean(*text, def.choices)));
  if (!def.range) return;
  auto [low, high] = *def.range;
  auto inside = [&, low = low, high = high](double v) {
    if (!(v >= low && v <= high)) throw UserError(fmt::format("{} attribute '{}' is {}; it must lie in [{}, {}]", where, def.name, v, low, high));
  };
  if (const auto* v = std::get_if<std::int64_t>(&value)) inside(static_cast<double>(*v));
  if (const auto* v = std::get_if<double>(&value)) inside(*v);
  if (const auto* v = std::get_if<Integers>(&value))
    for (std::int64_t x : *v) inside(static_cast<double>(x));
  if (const auto* v = std::get_if<Reals>(&value))
    for (double x : *v) inside(x);
}

}  // namespace

std::string to_string(const HostTensor& tensor) { return Printer{}(tensor); }
std::string to_string(const AttributeValue& value) { return std::visit(Printer{}, static_cast<const AttributeVariant&>(value)); }

const AttributeValue* Attributes::find(std::string_view name) const {
  auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  return at == entries_.end() ? nullptr : &at->second;
}

void Attributes::set(std::string_view name, AttributeValue value) {
  for (Entry& e : entries_)
    if (e.first == name) return void(e.second = std::move(value));
  entries_.emplace_back(name, std::move(value));
}

Attributes checked(const std::vector<AttributeDef>& schema, const Attributes& given, const std::string& where) {
  for (const auto& [name, value] : given.entries()) {
    auto known = std::any_of(schema.begin(), schema.end(), [&name = name](const AttributeDef& d) { return d.name == name; });
    if (known) continue;
    std::vector<std::string> names;
    for (const AttributeDef& d : schema) names.push_back(d.name);
    throw UserError(fmt::format("{} has no attribute '{}'; it has {}{}", where, name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), did_you_mean(name, names)));
  }
  Attributes out;
  for (const AttributeDef& def : schema) {
    const AttributeValue* found = given.find(def.name);
    if (!found && !def.fallback) throw UserError(fmt::format("{} needs the attribute '{}' ({})", where, def.name, name_of(def.kind)));
    AttributeValue value = found ? *found : *def.fallback;
    if (def.kind == AttributeKind::real && value.kind() == AttributeKind::integer) value = static_cast<double>(std::get<std::int64_t>(value));
    if (def.kind == AttributeKind::reals && value.kind() == AttributeKind::integers) {
      const Integers& whole = std::get<Integers>(value);
      value = Reals(whole.begin(), whole.end());
    }
    if (value.kind() != def.kind)
      throw UserError(fmt::format("{} attribute '{}' is a {}, not a {}: {}", where, def.name, name_of(def.kind), name_of(value.kind()), to_string(value)));
    check_value(def, value, where);
    out.set(def.name, std::move(value));
  }
  return out;
}

}  // namespace belfry
