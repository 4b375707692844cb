#include <belfry/frontends/json/strict_json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/files/utf8.h>
#include <belfry/graph/float_environment.h>
#include <belfry/graph/graph.h>

namespace belfry {

namespace {

constexpr const char* kKinds[] = {"null", "a boolean", "an integer", "a float", "a text", "an array", "an object"};

std::string excerpt(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 60)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > 60 ? out + "…" : out;
}

std::string pointer_token(std::string_view key) {
  std::string out = "/";
  for (char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

/// Tells how far the lexer has read: it looks at most one byte ahead, and only behind a number.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  const char** read = nullptr;
  reference operator*() const { return *at; }
  CountingIterator& operator++() { return *read = ++at, *this; }
  CountingIterator operator++(int) { auto before = *this; ++*this; return before; }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

/// Builds the tree from nlohmann's events; an error is kept as message and line.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(JsonValue& root, std::string_view text, const JsonLimits& limits) : root_(root), counted_(text.data()), begin_(text.data()), limits_(limits) {}
  const char** read() { return &read_; }

  bool null() override { return add({.kind = JsonValue::kNull}); }
  bool boolean(bool v) override { return add({.kind = JsonValue::kBoolean, .flag = v}); }
  bool number_integer(number_integer_t v) override { return add({.kind = JsonValue::kInteger, .integer = v}); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<std::uint64_t>(INT64_MAX)) return refuse(fmt::format("the integer {} does not fit in 64 bits with a sign", v));
    return add({.kind = JsonValue::kInteger, .integer = static_cast<std::int64_t>(v)});
  }
  bool number_float(number_float_t, const string_t& digits) override {
    std::string text = digits;  // the lexer puts the locale's decimal point in
    std::replace_if(text.begin(), text.end(), [](char c) { return std::string_view("0123456789+-eE").find(c) == std::string_view::npos; }, '.');
    if (text.find_first_of(".eE") == text.npos) return refuse(fmt::format("the integer {} does not fit in 64 bits with a sign", excerpt(text)));
    return add({.kind = JsonValue::kReal, .text = std::move(text)});
  }
  bool string(string_t& v) override { return add({.kind = JsonValue::kText, .text = std::move(v)}); }
  bool binary(binary_t&) override { return refuse("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(JsonValue::kObject); }
  bool start_array(std::size_t) override { return open(JsonValue::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (!seen_.back().insert(key).second) return refuse(fmt::format("the key \"{}\" stands twice", excerpt(key)));
    stack_.back()->keys.push_back(std::move(key));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …"
    if (auto colon = what.find(": "); colon != what.npos) what = what.substr(colon + 2);
    else if (auto bracket = what.find("] "); bracket != what.npos) what = what.substr(bracket + 2);
    return refuse(what);
  }

  /// Of the value being read, or of the innermost container that is open.
  std::string pointer() const {
    std::string out;
    for (const JsonValue* v : stack_) {
      if (v->kind == JsonValue::kArray) out += fmt::format("/{}", v->items.size() - (v == stack_.back() ? 0 : 1));
      else if (!v->keys.empty()) out += pointer_token(v->keys.back());
    }
    return out.substr(0, 400);
  }
  std::string error;
  int line() {
    const char* last = std::max(begin_, read_ - 1);
    line_ += static_cast<int>(std::count(counted_, std::max(counted_, last), '\n'));
    counted_ = std::max(counted_, last);
    return line_;
  }

 private:
  bool refuse(std::string message) { return error = std::move(message), false; }
  bool add(JsonValue v) {
    if (++count_ > limits_.values) return refuse(fmt::format("the file holds more than {} values", limits_.values));
    v.line = line();
    last_ = stack_.empty() ? &(root_ = std::move(v)) : &stack_.back()->items.emplace_back(std::move(v));
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (stack_.size() >= static_cast<std::size_t>(limits_.depth)) return refuse(fmt::format("values are nested deeper than {}", limits_.depth));
    if (!add({.kind = kind})) return false;
    stack_.push_back(last_);
    seen_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    seen_.pop_back();
    return true;
  }

  JsonValue& root_;
  const char *counted_, *begin_, *read_ = begin_;
  int line_ = 1;
  JsonLimits limits_;
  std::size_t count_ = 0;
  JsonValue* last_ = nullptr;
  std::vector<JsonValue*> stack_;  // an open container is the last item of its parent, which gets none until it closes
  std::vector<std::unordered_set<std::string>> seen_;
};

bool find_path(const JsonValue& from, const JsonValue& to, std::string& path) {
  if (&from == &to) return true;
  for (std::size_t i = 0; i < from.items.size(); ++i) {
    std::size_t before = path.size();
    path += from.kind == JsonValue::kArray ? fmt::format("/{}", i) : pointer_token(from.keys[i]);
    if (find_path(from.items[i], to, path)) return true;
    path.resize(before);
  }
  return false;
}

std::string shown(const JsonValue& v) {
  switch (v.kind) {
    case JsonValue::kBoolean: return v.flag ? "true" : "false";
    case JsonValue::kInteger: return fmt::format("the integer {}", v.integer);
    case JsonValue::kReal: return "the float " + excerpt(v.text);
    case JsonValue::kText: return "\"" + excerpt(v.text) + "\"";
    default: return kKinds[v.kind];
  }
}

/// nullopt where it is no number and none of "inf", "-inf", "nan".
template <class T>
std::optional<T> number(const JsonValue& v) {
  if (v.kind == JsonValue::kInteger) return static_cast<T>(v.integer);
  if (v.kind == JsonValue::kReal) {
    T out = 0;
    auto [end, status] = std::from_chars(v.text.data(), v.text.data() + v.text.size(), out);
    if (status != std::errc::result_out_of_range) return out;
    double wide = 0;  // of f32 perhaps in range; else a value too small: too large a one was refused when it was read
    const auto as_double = std::from_chars(v.text.data(), v.text.data() + v.text.size(), wide);
    return static_cast<T>(as_double.ec == std::errc::result_out_of_range && v.text.starts_with('-') ? -0.0 : wide);
  }
  if (v.kind != JsonValue::kText) return {};
  if (v.text == "inf") return std::numeric_limits<T>::infinity();
  if (v.text == "-inf") return -std::numeric_limits<T>::infinity();
  if (v.text == "nan") return std::numeric_limits<T>::quiet_NaN();
  return {};
}

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  std::string out = fmt::format("{}", value);
  return out.find_first_of(".eE") == out.npos ? out + ".0" : out;  // so that -0 keeps its sign
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
}

JsonDocument::JsonDocument(std::string_view text, std::string file, const JsonLimits& limits) : file_(std::move(file)) {
  const DefaultFloats floats;  // the lexer reads numbers too
  auto refuse = [&](std::size_t at, const std::string& message) {
    throw UserError(fmt::format("{}:{}: {}", file_, 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'), message));
  };
  if (text.size() > limits.bytes) throw UserError(fmt::format("{}: {} bytes are more than the limit of {}", file_, text.size(), limits.bytes));
  if (text.starts_with("\xEF\xBB\xBF")) refuse(0, "the file begins with a byte order mark; save it as UTF-8 without one");
  if (auto nul = text.find('\0'); nul != text.npos) refuse(nul, fmt::format("byte {} is NUL, which is not JSON", nul));
  TreeBuilder builder(root_, text, limits);
  CountingIterator begin{text.data(), builder.read()}, end{text.data() + text.size(), builder.read()};
  if (!nlohmann::json::sax_parse(begin, end, &builder)) {
    std::string pointer = builder.pointer();
    throw UserError(fmt::format("{}:{}: {}{}", file_, builder.line(), pointer.empty() ? "" : pointer + ": ", builder.error));
  }
}

void JsonDocument::fail(const JsonValue& at, const std::string& message) const {
  std::string path;
  find_path(root_, at, path);
  throw UserError(fmt::format("{}:{}: {}{}", file_, at.line, path.empty() ? "" : path + ": ", message));
}

bool JsonDocument::flag(const JsonValue& v) const {
  if (v.kind != JsonValue::kBoolean) fail(v, "must be true or false, not " + shown(v));
  return v.flag;
}

std::int64_t JsonDocument::integer(const JsonValue& v, std::int64_t low, std::int64_t high) const {
  if (v.kind != JsonValue::kInteger) {
    const std::optional<double> whole = v.kind == JsonValue::kReal ? number<double>(v) : std::nullopt;
    const bool writes = whole && std::abs(*whole) < 1e15 && std::trunc(*whole) == *whole;
    fail(v, fmt::format("must be an integer, not {}{}", shown(v), writes ? fmt::format(": write {}", static_cast<std::int64_t>(*whole)) : ""));
  }
  if (v.integer < low || v.integer > high) fail(v, fmt::format("is {}; it must lie in [{}, {}]", v.integer, low, high));
  return v.integer;
}

double JsonDocument::real(const JsonValue& v) const {
  const DefaultFloats floats;
  auto out = number<double>(v);
  if (!out) fail(v, "must be a number, \"inf\", \"-inf\" or \"nan\", not " + shown(v));
  return *out;
}

float JsonDocument::real32(const JsonValue& v) const {
  const DefaultFloats floats;
  auto out = number<float>(v);
  if (!out) fail(v, "must be a number, \"inf\", \"-inf\" or \"nan\", not " + shown(v));
  if (std::isinf(*out) && v.kind != JsonValue::kText) fail(v, shown(v) + " does not fit in f32");
  return *out;
}

const std::string& JsonDocument::text(const JsonValue& v) const {
  if (v.kind != JsonValue::kText) fail(v, "must be a text, not " + shown(v));
  return v.text;
}

const std::vector<JsonValue>& JsonDocument::array(const JsonValue& v) const {
  if (v.kind != JsonValue::kArray) fail(v, "must be an array, not " + shown(v));
  return v.items;
}

const JsonValue& JsonDocument::object(const JsonValue& v, const std::string& keys) const {
  if (v.kind != JsonValue::kObject) fail(v, fmt::format("must be an object{}{}, not {}", keys.empty() ? "" : " of ", keys, shown(v)));
  return v;
}

const JsonValue* JsonObject::find(std::string_view key) {
  taken_.emplace_back(key);
  return value.find(key);
}

const JsonValue& JsonObject::at(std::string_view key) {
  if (const JsonValue* v = find(key)) return *v;
  const auto near = std::find_if(value.keys.begin(), value.keys.end(), [&](const std::string& k) { return !did_you_mean(k, {std::string(key)}).empty(); });
  document.fail(value, fmt::format("lacks the key \"{}\"{}", key, near == value.keys.end() ? "" : fmt::format("; is \"{}\" meant for it?", excerpt(*near))));
}

void JsonObject::done() const {
  for (std::size_t i = 0; i < value.keys.size(); ++i) {
    const std::string& key = value.keys[i];
    if (key == "note") document.text(value.items[i]);
    else if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) {
      const std::string near = did_you_mean(key, taken_);
      const std::set<std::string> known(taken_.begin(), taken_.end());
      document.fail(value.items[i], fmt::format("there is no key \"{}\" here{}", excerpt(key), !near.empty() ? near : known.empty() ? "; leave it out" : fmt::format("; those that are read are {}", fmt::join(known, ", "))));
    }
  }
}

std::string json_text(std::string_view text) {
  if (auto out = json_quoted(text)) return *std::move(out);
  throw UserError(fmt::format("the text \"{}\" is not UTF-8: it cannot stand in a file", excerpt(printable(text))));
}
std::string json_real(double value) { return shortest(value); }
std::string json_real(float value) { return shortest(value); }

}  // namespace belfry
