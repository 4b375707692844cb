// Shapes, attributes and tensors as JSON, both ways: what graph and plan files share.
#pragma once

#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/strict_json.h>

namespace belfry {

/// One line: {"a": 1, "b": [2]}, of values that are JSON already.
class LineWriter {
 public:
  void add(std::string_view key, const std::string& json);
  std::string text() const { return "{" + body_ + "}"; }
  bool empty() const { return body_.empty(); }

 private:
  std::string body_;
};

/// "[a, b]" of values that are JSON already.
std::string json_list(const std::vector<std::string>& items);
std::string json_lines(const std::vector<std::string>& items);  ///< an item per line, indented under a key of the root
std::string json_texts(const std::vector<std::string>& texts);  ///< ["a", "b"]; UserError as json_text

std::string json_of(const Shape& shape);
std::string json_of(const AttributeValue& value, const TensorStore& tensors);
/// {"shape", "values"}, of any size: what results are written as.
std::string json_of(const HostTensor& tensor);

Shape shape_of(const JsonDocument& d, const JsonValue& v);
DType dtype_of(const JsonDocument& d, const JsonValue& v);
DeviceId device_of(const JsonDocument& d, const JsonValue& v);
AttributeValue attribute_of(const JsonDocument& d, const JsonValue& v, AttributeKind kind, const TensorStore& tensors);
/// By its look alone, where no schema speaks of it.
AttributeValue plain_attribute_of(const JsonDocument& d, const JsonValue& v);

/// Runs f and gives a UserError of its own the place of `v`.
template <class F>
auto placed(const JsonDocument& d, const JsonValue& v, F&& f) {
  try {
    return f();
  } catch (const UserError& e) {
    if (std::string_view(e.what()).starts_with(d.file() + ":")) throw;  // it has its place
    d.fail(v, e.what());
  }
}

}  // namespace belfry
