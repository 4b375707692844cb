// Typed attributes of nodes and the schema that an op gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <belfry/graph/host_tensor.h>

namespace belfry {

using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using TensorRef = std::shared_ptr<const HostTensor>;

/// The alternatives stand in the order of AttributeKind.
using AttributeVariant = std::variant<bool, std::int64_t, double, std::string, Integers, Reals, DType, Shape, TensorRef>;
enum class AttributeKind { truth, integer, real, text, integers, reals, dtype, shape, tensor };
std::string_view name_of(AttributeKind kind);

/// Defined out of line, as what is copied and destroyed in every op's definition.
struct AttributeValue : AttributeVariant {
  AttributeValue();
  AttributeValue(bool v);
  AttributeValue(int v);
  AttributeValue(std::int64_t v);
  AttributeValue(double v);
  AttributeValue(float v);
  AttributeValue(const char* v);
  AttributeValue(std::string v);
  AttributeValue(std::string_view v);
  AttributeValue(Integers v);
  AttributeValue(Reals v);
  AttributeValue(DType v);
  AttributeValue(Shape v);
  AttributeValue(HostTensor v);
  AttributeValue(const AttributeValue&);
  AttributeValue(AttributeValue&&) noexcept;
  AttributeValue& operator=(const AttributeValue&);
  AttributeValue& operator=(AttributeValue&&) noexcept;
  ~AttributeValue();

  AttributeKind kind() const { return static_cast<AttributeKind>(index()); }
  /// Tensors are compared by their bytes.
  bool operator==(const AttributeValue& other) const;
};
std::string to_string(const AttributeValue& value);
std::string to_string(const HostTensor& tensor);  ///< its type and first elements

/// What an op says of one attribute. Without a default it must be given.
struct AttributeDef {
  AttributeDef(std::string name, AttributeValue fallback);
  AttributeDef(std::string name, AttributeKind kind);
  AttributeDef(const AttributeDef&);
  AttributeDef(AttributeDef&&) noexcept;
  AttributeDef& operator=(const AttributeDef&);
  AttributeDef& operator=(AttributeDef&&) noexcept;
  ~AttributeDef();
  AttributeDef& one_of(std::vector<std::string> texts) { return choices = std::move(texts), *this; }
  AttributeDef& between(double low, double high) { return range = {low, high}, *this; }

  std::string name;
  AttributeKind kind;
  std::optional<AttributeValue> fallback;
  std::vector<std::string> choices;                ///< of a text
  std::optional<std::pair<double, double>> range;  ///< of a number, or of each of several; both ends included
};

/// Name and value in the order of the op's schema.
class Attributes {
 public:
  using Entry = std::pair<std::string, AttributeValue>;
  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  const AttributeValue* find(std::string_view name) const;
  void set(std::string_view name, AttributeValue value);
  /// InternalError if it is absent or of another type: the schema was checked when the node was added.
  template <class T>
  const T& get(std::string_view name) const {
    const AttributeValue* v = find(name);
    if (!v || !std::holds_alternative<T>(*v)) throw InternalError("attribute '" + std::string(name) + "' is absent or of another type");
    return std::get<T>(*v);
  }
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  bool flag(std::string_view name) const { return get<bool>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const Integers& integers(std::string_view name) const { return get<Integers>(name); }
  const Shape& shape(std::string_view name) const { return get<Shape>(name); }
  DType dtype(std::string_view name) const { return get<DType>(name); }
  const HostTensor& tensor(std::string_view name) const { return *get<TensorRef>(name); }

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// Fills in defaults, puts entries into schema order, takes an integer for a real.
/// UserError, opening with `where`, for unknown names, wrong types, values out of range.
Attributes checked(const std::vector<AttributeDef>& schema, const Attributes& given, const std::string& where);

}  // namespace belfry
