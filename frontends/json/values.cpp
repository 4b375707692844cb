#include <belfry/frontends/json/values.h>

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

namespace belfry {

void LineWriter::add(std::string_view key, const std::string& json) { body_ += fmt::format("{}\"{}\": {}", body_.empty() ? "" : ", ", key, json); }

std::string json_list(const std::vector<std::string>& items) { return fmt::format("[{}]", fmt::join(items, ", ")); }

std::string json_lines(const std::vector<std::string>& items) {
  if (items.empty()) return "[]";
  return fmt::format("[\n    {}\n  ]", fmt::join(items, ",\n    "));
}

std::string json_texts(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& t : texts) out.push_back(json_text(t));
  return json_list(out);
}

namespace {

constexpr std::int64_t kMostAlike = 1 << 20;  ///< elements that one value may stand for: a small file asks for no more

template <class T>
std::string element_text(T v) {
  if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
  else if constexpr (std::is_floating_point_v<T>) return json_real(v);
  else if constexpr (is_half(dtype_of<T>())) return json_real(static_cast<float>(v));
  else return std::to_string(v);
}

template <class T>
T element_of(const JsonDocument& d, const JsonValue& v) {
  if constexpr (std::is_same_v<T, bool>) return d.flag(v);
  else if constexpr (std::is_same_v<T, float> || is_half(dtype_of<T>())) return T(d.real32(v));
  else if constexpr (std::is_same_v<T, double>) return d.real(v);
  else return static_cast<T>(d.integer(v, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

std::string hash_of(const HostTensor& t) {
  std::string type = to_string(t.type());
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, type.data(), type.size());
  XXH3_128bits_update(state, t.bytes().data(), t.bytes().size());
  XXH128_hash_t h = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

std::string json_of_tensor(const HostTensor& t, const TensorStore& tensors) {
  LineWriter line;
  line.add("dtype", json_text(name_of(t.dtype())));
  line.add("shape", fmt::format("[{}]", fmt::join(t.shape(), ", ")));
  const std::span<const std::byte> bytes = t.bytes();
  const std::size_t size = size_of(t.dtype());
  const bool alike = t.elements() > kInlineElements && t.elements() <= kMostAlike && std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.end(), bytes.begin());
  if (t.elements() > kInlineElements && !alike) {
    if (!tensors.put) throw UserError(fmt::format("a tensor {} has more than {} elements: it needs a side file to live in", to_string(t.type()), kInlineElements));
    std::string name = hash_of(t);
    tensors.put(name, t);
    line.add("stored", json_text(name));
    return line.text();
  }
  std::vector<std::string> values;
  visit_stored(t.dtype(), [&]<class T>() {
    for (T v : t.data<T>().first(alike ? 1 : t.data<T>().size())) values.push_back(element_text(v));
  });
  line.add("values", json_list(values));
  return line.text();
}

HostTensor tensor_of(const JsonDocument& d, const JsonValue& v, const TensorStore& tensors) {
  JsonObject o(d, d.object(v, "\"dtype\", \"shape\" and \"values\" (or \"stored\")"));
  LocalType type{dtype_of(d, o.at("dtype")), {}};
  const JsonValue& shape = o.at("shape");
  for (const JsonValue& e : d.array(shape)) type.shape.push_back(d.integer(e, 0));
  std::int64_t count = placed(d, shape, [&] { return elements(type.shape); });
  const JsonValue *values = o.find("values"), *stored = o.find("stored");
  o.done();
  if (!values == !stored) d.fail(v, "a tensor has either \"values\" or \"stored\", beside \"dtype\" and \"shape\"");
  if (stored) {
    const std::string& name = d.text(*stored);
    if (!tensors.get) d.fail(*stored, "the tensor lives in a side file, which was not given");
    HostTensor t = placed(d, *stored, [&] { return tensors.get(name); });
    if (t.type() != type) d.fail(*stored, fmt::format("the side file holds {}, not {}", to_string(t.type()), to_string(type)));
    if (hash_of(t) != name) d.fail(*stored, "the tensor of the side file has another XXH3: the file belongs to another graph");
    return t;
  }
  const auto& items = d.array(*values);
  const bool alike = items.size() == 1 && count > kInlineElements;
  if (alike && count > kMostAlike) d.fail(*values, fmt::format("one value for {} elements; up to {} may be alike, more live in a side file", count, kMostAlike));
  if (static_cast<std::int64_t>(items.size()) != count && !alike) d.fail(*values, fmt::format("{} values for the shape {}", items.size(), to_string(std::span(type.shape))));
  HostTensor t(type.dtype, type.shape);
  visit_stored(type.dtype, [&]<class T>() {
    auto out = t.data<T>();
    if (alike) std::fill(out.begin(), out.end(), element_of<T>(d, items[0]));
    else for (std::size_t i = 0; i < items.size(); ++i) out[i] = element_of<T>(d, items[i]);
  });
  return t;
}

struct AttributeWriter {
  const TensorStore& tensors;
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return json_real(v); }
  std::string operator()(const std::string& v) const { return json_text(v); }
  std::string operator()(const Integers& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const Reals& v) const {
    std::vector<std::string> items;
    for (double x : v) items.push_back(json_real(x));
    return json_list(items);
  }
  std::string operator()(DType v) const { return json_text(name_of(v)); }
  std::string operator()(const Shape& v) const { return json_of(v); }
  std::string operator()(const TensorRef& v) const { return json_of_tensor(*v, tensors); }
};

}  // namespace

std::string json_of(const Shape& shape) {
  std::vector<std::string> items;
  for (const Dim& dim : shape) items.push_back(dim.symbolic() ? json_text(to_string(dim)) : std::to_string(dim.factor));
  return json_list(items);
}

std::string json_of(const AttributeValue& value, const TensorStore& tensors) { return std::visit(AttributeWriter{tensors}, static_cast<const AttributeVariant&>(value)); }

std::string json_of(const HostTensor& tensor) {
  std::vector<std::string> values;
  visit_stored(tensor.dtype(), [&]<class T>() {
    for (const T& v : tensor.data<T>())
      if constexpr (std::is_integral_v<T>) values.push_back(std::to_string(static_cast<std::int64_t>(v)));
      else if constexpr (is_half(dtype_of<T>())) values.push_back(json_real(static_cast<double>(static_cast<float>(v))));
      else values.push_back(json_real(static_cast<double>(v)));
  });
  return fmt::format("{{\"shape\": [{}], \"values\": [{}]}}", fmt::join(tensor.shape(), ", "), fmt::join(values, ", "));
}

Shape shape_of(const JsonDocument& d, const JsonValue& v) {
  Shape out;
  for (const JsonValue& e : d.array(v)) {
    if (e.kind != JsonValue::kText) {
      if (e.kind == JsonValue::kNull || (e.kind == JsonValue::kInteger && e.integer == -1)) d.fail(e, fmt::format("is {}: a size that the feeds give is a symbol, as \"batch\" for rows", e.kind == JsonValue::kNull ? "null" : "-1"));
      out.push_back(d.integer(e, 0));
      continue;
    }
    Dim dim = placed(d, e, [&] { return parse_dim(e.text); });
    if (!dim.symbolic()) d.fail(e, fmt::format("a size without a symbol is written as an integer: {}", dim.factor));
    out.push_back(std::move(dim));
  }
  if (out.size() > 32) d.fail(v, fmt::format("a shape has at most 32 axes, not {}", out.size()));
  return out;
}

DType dtype_of(const JsonDocument& d, const JsonValue& v) {
  return placed(d, v, [&] { return parse_dtype(d.text(v)); });
}

DeviceId device_of(const JsonDocument& d, const JsonValue& v) {
  const std::string& text = d.text(v);
  return placed(d, v, [&] { return parse_device(text); });
}

AttributeValue attribute_of(const JsonDocument& d, const JsonValue& v, AttributeKind kind, const TensorStore& tensors) {
  switch (kind) {
    case AttributeKind::truth: return d.flag(v);
    case AttributeKind::integer: return d.integer(v);
    case AttributeKind::real: return d.real(v);
    case AttributeKind::text: return d.text(v);
    case AttributeKind::dtype: return dtype_of(d, v);
    case AttributeKind::shape: return shape_of(d, v);
    case AttributeKind::tensor: return tensor_of(d, v, tensors);
    case AttributeKind::integers: {
      Integers out;
      for (const JsonValue& e : d.array(v)) out.push_back(d.integer(e));
      return out;
    }
    case AttributeKind::reals: break;
  }
  Reals out;
  for (const JsonValue& e : d.array(v)) out.push_back(d.real(e));
  return out;
}

AttributeValue plain_attribute_of(const JsonDocument& d, const JsonValue& v) {
  if (v.kind == JsonValue::kBoolean) return v.flag;
  if (v.kind == JsonValue::kInteger) return v.integer;
  if (v.kind == JsonValue::kReal) return d.real(v);
  if (v.kind == JsonValue::kArray) {
    bool whole = std::all_of(v.items.begin(), v.items.end(), [](const JsonValue& e) { return e.kind == JsonValue::kInteger; });
    return attribute_of(d, v, whole ? AttributeKind::integers : AttributeKind::reals, {});
  }
  return d.text(v);
}

}  // namespace belfry
