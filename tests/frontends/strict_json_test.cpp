#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <belfry/frontends/json/strict_json.h>
#include <belfry/graph/error.h>

#include "comma_locale.h"
#include "says.h"

namespace belfry {
namespace {

std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  try {
    JsonDocument document(text, "net.json", limits);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(StrictJson, refuses_what_a_lenient_parser_lets_pass) {
  EXPECT_EQ(refusal("{\n \"a\": {\"b\": 1,\n \"b\": 2}}"), "net.json:3: /a/b: the key \"b\" stands twice");
  EXPECT_EQ(refusal("{\"a\": 18446744073709551616}"), "net.json:1: /a: the integer 18446744073709551616 does not fit in 64 bits with a sign");
  EXPECT_EQ(refusal("[1,\n9223372036854775808]"), "net.json:2: /1: the integer 9223372036854775808 does not fit in 64 bits with a sign");
  EXPECT_EQ(refusal(std::string("{}\n\0{", 5)), "net.json:2: byte 3 is NUL, which is not JSON");
  EXPECT_EQ(refusal("\xEF\xBB\xBF{}"), "net.json:1: the file begins with a byte order mark; save it as UTF-8 without one");
  EXPECT_NE(refusal("{} {}").find("net.json:1: "), std::string::npos);
  EXPECT_NE(refusal("[1e999]"), "");
  EXPECT_NE(refusal("[\"\xFF\"]"), "");
  EXPECT_NE(refusal(""), "");
  EXPECT_EQ(refusal("[[1, 2], {\"a\": [true]}]"), "");
}

TEST(StrictJson, a_syntax_error_has_its_line_and_pointer) {
  EXPECT_TRUE(refusal("{\"nodes\": [\n  {\"name\": \"a\"},\n  {\"name\": }\n]}").starts_with("net.json:3: /nodes/1/name: syntax error"))
      << refusal("{\"nodes\": [\n  {\"name\": \"a\"},\n  {\"name\": }\n]}");
}

TEST(StrictJson, numbers_are_the_nearest_whatever_rounding_the_caller_has_set) {
  const std::vector<std::string> digits = {"0.1", "0.3", "1e-7", "-2.7", "123456789.12345679", "1.7976931348623157e308", "5e-324"};
  for (int rounding : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO})
    for (const std::string& text : digits) {
      std::fesetround(rounding);
      const JsonDocument document(text, "net.json");
      const double x = document.real(document.root());
      const bool fits = std::abs(x) > 1e-30 && std::abs(x) < 1e30;
      const float y = fits ? document.real32(document.root()) : 0;
      const int after = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(after, rounding);
      EXPECT_EQ(json_real(x), json_real(std::strtod(text.c_str(), nullptr))) << text;
      EXPECT_EQ(y, fits ? std::strtof(text.c_str(), nullptr) : 0) << text;
    }
}

TEST(StrictJson, numbers_have_points_whatever_the_programs_locale_has) {
  const test::CommaLocale comma;
  if (!comma) GTEST_SKIP() << "there is no locale with a decimal comma here, and localedef makes none";
  for (const auto& [text, want] : {std::pair("1.5", 1.5), {"-0.25e3", -250.0}, {"1.5e-400", 0.0}, {"2e3", 2000.0}}) {
    const JsonDocument document(text, "net.json");
    EXPECT_EQ(document.real(document.root()), want) << text;
    EXPECT_EQ(document.real32(document.root()), static_cast<float>(want)) << text;
  }
}

TEST(StrictJson, limits_are_told) {
  EXPECT_EQ(refusal(std::string(65, '[') + std::string(65, ']')).substr(0, 11), "net.json:1:");
  EXPECT_NE(refusal(std::string(65, '[') + std::string(65, ']')).find("nested deeper than 64"), std::string::npos);
  EXPECT_EQ(refusal(std::string(64, '[') + std::string(64, ']')), "");
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += open;
    EXPECT_NE(refusal(deep).find("nested deeper than 64"), std::string::npos);
  }
  EXPECT_EQ(refusal("[1, 2, 3]", {.bytes = 8}), "net.json: 9 bytes are more than the limit of 8");
  EXPECT_NE(refusal("[1, 2, 3]", {.values = 3}).find("more than 3 values"), std::string::npos);
}

TEST(StrictJson, every_value_knows_its_line_and_pointer) {
  JsonDocument d("{\"a\": [1,\n2\n,\n\"x\"], \"b/c~\": 3}", "f");
  const JsonValue& a = *d.root().find("a");
  EXPECT_EQ(a.items[0].line, 1);
  EXPECT_EQ(a.items[1].line, 2);
  EXPECT_EQ(a.items[2].line, 4);
  try {
    d.fail(*d.root().find("b/c~"), "no");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "f:4: /b~1c~0: no");
  }
  EXPECT_THROW(d.integer(a.items[2]), UserError);
  EXPECT_THROW(d.integer(a.items[0], 2, 3), UserError);
}

TEST(StrictJson, an_integer_is_a_float_but_no_float_is_an_integer) {
  JsonDocument d("[1, 1.0, \"inf\", \"-inf\", \"nan\", -0.0, 1e-400, true]", "f");
  const auto& v = d.root().items;
  EXPECT_EQ(d.real(v[0]), 1.0);
  EXPECT_THROW(d.integer(v[1]), UserError);
  EXPECT_EQ(d.real(v[2]), INFINITY);
  EXPECT_EQ(d.real(v[3]), -INFINITY);
  EXPECT_TRUE(std::isnan(d.real(v[4])));
  EXPECT_TRUE(std::signbit(d.real(v[5])));
  EXPECT_EQ(d.real(v[6]), 0.0);
  EXPECT_THROW(d.real(v[7]), UserError);
}

TEST(StrictJson, unknown_keys_are_refused_with_the_nearest_ones_and_notes_are_allowed) {
  JsonDocument d("{\"note\": \"hand made\", \"nmae\": 1, \"op\": 2}", "f");
  JsonObject o(d, d.root());
  o.at("op");
  EXPECT_EQ(o.find("name"), nullptr);
  try {
    o.done();
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "f:1: /nmae: there is no key \"nmae\" here; did you mean name?");
  }
}

TEST(StrictJson, written_floats_read_back_bit_for_bit) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 200'000; ++i) {
    auto bits = rng();
    float f;
    double x;
    std::memcpy(&f, &bits, sizeof f);
    std::memcpy(&x, &bits, sizeof x);
    if (std::isnan(f) || std::isnan(x)) continue;
    JsonDocument d("[" + json_real(f) + "," + json_real(x) + "]", "f");
    float g = d.real32(d.root().items[0]);
    double y = d.real(d.root().items[1]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(f), std::bit_cast<std::uint32_t>(g)) << json_real(f);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(x), std::bit_cast<std::uint64_t>(y)) << json_real(x);
  }
  EXPECT_EQ(json_real(0.1f), "0.1");
  EXPECT_EQ(json_real(-0.0), "-0.0");
  EXPECT_EQ(json_text("a\"\n\xC3\xA4"), "\"a\\\"\\n\xC3\xA4\"");
  EXPECT_TRUE(test::says([] { json_text("caf\xE9"); }, {"the text \"caf\\xe9\" is not UTF-8"}));
}

/// What RFC 8259 leaves open, decided: true is accepted.
const std::map<std::string, bool>& verdicts() {
  static const std::map<std::string, bool> table = {
      {"i_number_double_huge_neg_exp.json", true},                  // rounds to 0
      {"i_number_huge_exp.json", false},                            // outside f64
      {"i_number_neg_int_huge_exp.json", false},                    // outside f64
      {"i_number_pos_double_huge_exp.json", false},                 // outside f64
      {"i_number_real_neg_overflow.json", false},                   // outside f64
      {"i_number_real_pos_overflow.json", false},                   // outside f64
      {"i_number_real_underflow.json", true},                       // rounds to 0
      {"i_number_too_big_neg_int.json", false},                     // outside 64 bits
      {"i_number_too_big_pos_int.json", false},                     // outside 64 bits
      {"i_number_very_big_negative_int.json", false},               // outside 64 bits
      {"i_object_key_lone_2nd_surrogate.json", false},              // no Unicode
      {"i_string_1st_surrogate_but_2nd_missing.json", false},       // no Unicode
      {"i_string_1st_valid_surrogate_2nd_invalid.json", false},     // no Unicode
      {"i_string_UTF-16LE_with_BOM.json", false},                   // UTF-8 alone
      {"i_string_UTF-8_invalid_sequence.json", false},              // no UTF-8
      {"i_string_UTF8_surrogate_U+D800.json", false},               // no UTF-8
      {"i_string_incomplete_surrogate_and_escape_valid.json", false},  // no Unicode
      {"i_string_incomplete_surrogate_pair.json", false},           // no Unicode
      {"i_string_incomplete_surrogates_escape_valid.json", false},  // no Unicode
      {"i_string_invalid_lonely_surrogate.json", false},            // no Unicode
      {"i_string_invalid_surrogate.json", false},                   // no Unicode
      {"i_string_invalid_utf-8.json", false},                       // no UTF-8
      {"i_string_inverted_surrogates_U+1D11E.json", false},         // no Unicode
      {"i_string_iso_latin_1.json", false},                         // no UTF-8
      {"i_string_lone_second_surrogate.json", false},               // no Unicode
      {"i_string_lone_utf8_continuation_byte.json", false},         // no UTF-8
      {"i_string_not_in_unicode_range.json", false},                // no UTF-8
      {"i_string_overlong_sequence_2_bytes.json", false},           // no UTF-8
      {"i_string_overlong_sequence_6_bytes.json", false},           // no UTF-8
      {"i_string_overlong_sequence_6_bytes_null.json", false},      // no UTF-8
      {"i_string_truncated-utf-8.json", false},                     // no UTF-8
      {"i_string_utf16BE_no_BOM.json", false},                      // UTF-8 alone
      {"i_string_utf16LE_no_BOM.json", false},                      // UTF-8 alone
      {"i_structure_500_nested_arrays.json", false},                // deeper than 64
      {"i_structure_UTF-8_BOM_empty_object.json", false},           // a byte order mark
  };
  return table;
}

/// Legal JSON that is refused here on purpose.
const std::map<std::string, std::string>& refused_on_purpose() {
  static const std::map<std::string, std::string> table = {{"y_object_duplicated_key.json", "stands twice"}, {"y_object_duplicated_key_and_value.json", "stands twice"}};
  return table;
}

TEST(StrictJson, gives_the_written_verdict_on_every_file_of_the_parsing_test_suite) {
  std::filesystem::path folder = std::filesystem::path(BELFRY_SHARED) / "data/json-test-suite/test_parsing";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the test suite's files are not here: " << folder;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    std::string got = refusal(text.str());
    ++files;
    if (auto on_purpose = refused_on_purpose().find(name); on_purpose != refused_on_purpose().end()) EXPECT_NE(got.find(on_purpose->second), std::string::npos) << name;
    else if (name[0] == 'y') EXPECT_EQ(got, "") << name;
    else if (name[0] == 'n') EXPECT_NE(got, "") << name;
    else if (!verdicts().contains(name)) ADD_FAILURE() << name << " has no verdict";
    else EXPECT_EQ(got.empty(), verdicts().at(name)) << name << ": " << got;
  }
  EXPECT_EQ(files, 318);
}

}  // namespace
}  // namespace belfry
