// Strict JSON: a parsed document that knows the line and the JSON Pointer of every value, and text for values to be written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belfry {

struct JsonLimits {
  int depth = 64;
  std::size_t bytes = std::size_t{1} << 28;
  std::size_t values = 10'000'000;
};

struct JsonValue {
  enum Kind : std::uint8_t { kNull, kBoolean, kInteger, kReal, kText, kArray, kObject };
  Kind kind = kNull;
  bool flag = false;
  int line = 0;
  std::int64_t integer = 0;
  std::string text = {};           ///< of a text; of a real, its digits as they stand in the file
  std::vector<JsonValue> items = {};  ///< of an array or object
  std::vector<std::string> keys = {};  ///< of an object, beside its items

  /// Null where the object has no such key.
  const JsonValue* find(std::string_view key) const;
};

/// Errors of all functions are UserErrors "file:line: /json/pointer: message".
class JsonDocument {
 public:
  /// UserError for what RFC 8259 does not allow, and for duplicate keys, a byte order mark, integers outside 64 bits,
  /// floats outside f64, and anything over the limits.
  JsonDocument(std::string_view text, std::string file, const JsonLimits& limits = {});

  const JsonValue& root() const { return root_; }
  const std::string& file() const { return file_; }
  [[noreturn]] void fail(const JsonValue& at, const std::string& message) const;

  bool flag(const JsonValue& v) const;
  std::int64_t integer(const JsonValue& v, std::int64_t low = INT64_MIN, std::int64_t high = INT64_MAX) const;
  /// An integer is taken for a real, and the texts "inf", "-inf", "nan".
  double real(const JsonValue& v) const;
  /// The digits read as f32 at once, so that a value is rounded once.
  float real32(const JsonValue& v) const;
  const std::string& text(const JsonValue& v) const;
  const std::vector<JsonValue>& array(const JsonValue& v) const;
  /// Checks that it is an object; `keys` are said where it is none.
  const JsonValue& object(const JsonValue& v, const std::string& keys = {}) const;

 private:
  JsonValue root_;
  std::string file_;
};

/// An object whose keys are taken one by one; `done` refuses what nobody took. "note" may stand in any object.
class JsonObject {
 public:
  JsonObject(const JsonDocument& d, const JsonValue& v) : document(d), value(d.object(v)) {}
  /// UserError if the key is absent.
  const JsonValue& at(std::string_view key);
  /// Null if the key is absent.
  const JsonValue* find(std::string_view key);
  void done() const;

  const JsonDocument& document;
  const JsonValue& value;

 private:
  std::vector<std::string> taken_;
};

/// Written values: quoted text (UserError for bytes that are no UTF-8), and the shortest decimals that read back.
std::string json_text(std::string_view text);
std::string json_real(double value);
std::string json_real(float value);

}  // namespace belfry
