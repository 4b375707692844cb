// Tables (.csv) as data: cells, quotes, encodings, labels that are words.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/data/inspect.h>
#include <belfry/frontends/data/tables.h>

#include "comma_locale.h"
#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

const InputRows kSmallPictures = {{"image", {f32, {2, 2, 1}}}, {"label", {i32, {}}}};

TEST(Tables, with_a_pixel_a_column_give_pictures) {
  Folder folder;
  write_text(folder / "a.csv", "p0,p1,p2,p3,label\n1,2,3,4,0\n5,6,7,8,1\n");
  EXPECT_EQ(data_folder(folder / "a.csv", {.all_to_test = true, .inputs = kSmallPictures}).test.columns.at("image"), HostTensor::of<float>({2, 2, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8}));
  write_text(folder / "a.csv", "p0,p1,p2,label\n1,2,3,0\n");
  EXPECT_NE(message_of([&] { data_folder(folder / "a.csv", {.all_to_test = true, .inputs = kSmallPictures}); }).find("has 4 values a row, f32(2, 2, 1), and the table has 3 columns that no input is named after (p0 to p2)"), std::string::npos);
}

TEST(Tables, give_features_by_name_wherever_they_stand) {
  Folder folder;
  const InputRows inputs = {{"x", {f32, {3}}}, {"label", {i32, {}}}};
  write_text(folder / "train.csv", "a,label,b,c\n1,0,2,3\n");
  write_text(folder / "test.csv", "c,a,label,b\n3,1,0,2\n");
  const Splits both = data_folder(folder.path(), {.inputs = inputs});
  EXPECT_EQ(both.test.columns.at("x"), both.train.columns.at("x"));
  EXPECT_EQ(both.features, (std::vector<std::string>{"a", "b", "c"}));
  auto alone = [&](const std::vector<std::string>& features) { return data_folder(folder / "test.csv", {.all_to_test = true, .features = features, .inputs = inputs}); };
  EXPECT_EQ(alone({"a", "b", "c"}).test.columns.at("x"), both.train.columns.at("x"));
  EXPECT_EQ(alone({}).test.columns.at("x"), HostTensor::of<float>({1, 3}, {3, 1, 2}));
  EXPECT_TRUE(says<UserError>([&] { alone({"a", "b", "d"}); }, {"test.csv: lacks the column 'd'", "a, b, d"}));
  write_text(folder / "test.csv", "c,a,label,b,id\n3,1,0,2,7\n");
  EXPECT_TRUE(says<UserError>([&] { data_folder(folder.path(), {.inputs = inputs}); }, {"test.csv: the column 'id' is none of those that the net learns from, a, b, c: leave it out"}));
}

TEST(Tables, with_a_column_too_many_name_the_input_of_many_values) {
  Folder folder;
  write_text(folder / "a.csv", "p0,p1,p2,p3,p4\n1,2,3,4,5\n");
  EXPECT_TRUE(says<UserError>([&] { data_folder(folder / "a.csv", {.all_to_test = true, .inputs = kSmallPictures}); }, {"a.csv: [data] the input 'image' has 4 values a row", "the table has 5 columns"}));
}

TEST(Tables, with_a_nan_have_no_mean_and_no_deviation) {
  Folder folder;
  write_text(folder / "a.csv", "a,label\n1,0\n-nan,1\n");
  const ColumnFacts facts = inspect_data(folder / "a.csv").splits.at(0).columns.at("a");
  EXPECT_TRUE(std::isnan(facts.mean.at(0)) && !std::signbit(facts.mean.at(0)) && std::isnan(facts.deviation.at(0)));
}

TEST(Tables, have_commas_and_quotes_in_quotes) {
  Folder folder;
  write_text(folder / "a.csv", "\"a,b\",label\r\n\"1\", \"ze,bra\"\n2,\"the \"\"cat\"\"\"\r\n3,5\" dog\n");
  const Table table = read_table(folder / "a.csv");
  EXPECT_EQ(table.names, (std::vector<std::string>{"a,b", "label"}));
  EXPECT_EQ(table.classes, (std::vector<std::string>{"5\" dog", "the \"cat\"", "ze,bra"}));
  EXPECT_EQ(table.values, HostTensor::of<double>({3, 2}, {1, 2, 2, 1, 3, 0}));
}

TEST(Tables, with_a_quote_that_is_not_closed_are_refused) {
  Folder folder;
  for (const auto& [text, place, value] : {std::tuple{"a,label\n1,dog\n2,\"cat\n", "line 3, column 'label': '\"cat' begins with a quote", ""},
                                           {"a,label\n1,\"ca\"\"t\n", "line 2, column 'label': '\"ca\"\"t' begins with a quote", ""},
                                           {"a,label,b\n1,\"ca\nt\",2\n", "line 2, column 'label': '\"ca' begins with a quote", "close it in the same line"},
                                           {"a,label\n1,\"cat\" dog\n", "line 2, column 'label': '\"cat\" dog' begins with a quote", "stands twice (\"\")"},
                                           {"a,\"label\n1,cat\n", "line 1, column 2: '\"label' begins with a quote", ""}}) {
    write_text(folder / "a.csv", text);
    EXPECT_TRUE(says<UserError>([&] { read_table(folder / "a.csv"); }, {place, value})) << text;
  }
  write_text(folder / "a.csv", "\"a\";\"label\"\n\"1\";\"cat\"\n");
  EXPECT_TRUE(says<UserError>([&] { read_table(folder / "a.csv"); }, {"there are semicolons between the values"}));
}

TEST(Tables, of_other_encodings_are_told_that_tables_are_utf8) {
  Folder folder;
  const std::string text = "a,label\n1,cat\n";
  std::string little, big;
  for (char c : text) little += {c, '\0'}, big += {'\0', c};
  for (const auto& [bytes, wanted] : {std::pair{std::string("caf\xe9,label\n1,2\n"), "line 1: the column 'caf\\xe9' is not UTF-8"}, {"\xff\xfe" + little, "byte order mark \\xff\\xfe of UTF-16, and tables are UTF-8"},
                                      {"\xfe\xff" + big, "byte order mark \\xfe\\xff of UTF-16"},
                                      {little, "byte 1 is NUL, as in UTF-16"}}) {
    write_text(folder / "a.csv", bytes);
    EXPECT_TRUE(says<UserError>([&] { read_table(folder / "a.csv"); }, {wanted}));
  }
}

TEST(Tables, may_end_their_lines_as_old_macs_do) {
  Folder folder;
  write_text(folder / "a.csv", "a,label\r1,cat\r2,dog\r");
  const Table table = read_table(folder / "a.csv");
  EXPECT_EQ(table.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(table.values, HostTensor::of<double>({2, 2}, {1, 0, 2, 1}));
}

TEST(Tables, name_the_first_label_that_is_no_class) {
  Folder folder;
  write_text(folder / "a.csv", "a,label\n1,cat\n2,dog\n3,yak\n4,gnu\n");
  const Table table = read_table(folder / "a.csv", {"emu", "dog, small", "dog", "cat"});
  EXPECT_NE(table.wrong_labels.find("a.csv, line 4, column 'label': 'yak' is no class that is trained on; those are emu, \"dog, small\", dog, cat: write one of them, leave the row out, or"), std::string::npos)
      << table.wrong_labels;
}

TEST(Tables, are_read_alike_whatever_rounding_the_caller_has_set) {
  Folder folder;
  write_text(folder / "a.csv", "a,b\n0.1,0.3\n1e-7,123456789.123456789\n");
  const HostTensor want = read_table(folder / "a.csv").values;
  for (int rounding : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    const Table table = read_table(folder / "a.csv");
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(after, rounding);
    EXPECT_EQ(table.values, want);
  }
}

TEST(Tables, have_tiny_numbers_rounded_to_0) {
  Folder folder;
  write_text(folder / "a.csv", "a,b\n1e-999,inf\n");
  EXPECT_EQ(read_table(folder / "a.csv").values, HostTensor::of<double>({1, 2}, {0, INFINITY}));
}

TEST(Tables, have_decimal_points_whatever_the_programs_locale_has) {
  const CommaLocale comma;
  if (!comma) GTEST_SKIP() << "there is no locale with a decimal comma here, and localedef makes none";
  Folder folder;
  write_text(folder / "a.csv", "a,b\n1.5e-999,2.5\n");
  EXPECT_EQ(read_table(folder / "a.csv").values, HostTensor::of<double>({1, 2}, {0, 2.5}));
  write_text(folder / "a.csv", "a,b\n1.5e999,2.5\n");
  EXPECT_TRUE(says<UserError>([&] { read_table(folder / "a.csv"); }, {"'1.5e999' is too large for a number"}));
}

TEST(Tables, with_tabs_are_told_to_have_commas) {
  Folder folder;
  write_text(folder / "a.tsv", "a\tb\n1\t2\n");
  EXPECT_TRUE(says<UserError>([&] { data_folder(folder / "a.tsv"); }, {"a.tsv: a .tsv is a table with tabs", "as .csv: save it so"}));
}

TEST(Tables, give_columns_by_name_and_features_from_those_left) {
  Folder folder;
  write_text(folder / "train.csv", "width, height,\"label\",age\r\n1,2.5,0,3\n\n-4,5e-1,1,6\n");
  write_text(folder / "test.csv", "width,height,label,age\n7,8,1,9\n");
  const Splits data = data_folder(folder.path(), {.inputs = {{"features", {f32, {3}}}, {"label", {i32, {}}}}});
  EXPECT_EQ(data.train.columns.at("features"), HostTensor::of<float>({2, 3}, {1, 2.5f, 3, -4, 0.5f, 6})) << "in the table's order";
  EXPECT_EQ(data.train.columns.at("label"), HostTensor::of<std::int32_t>({2}, {0, 1}));
  EXPECT_EQ(data.test.columns.at("features"), HostTensor::of<float>({1, 3}, {7, 8, 9}));
  EXPECT_EQ(data_folder(folder.path()).train.columns.at("age"), HostTensor::of<double>({2}, {3, 6}));
  EXPECT_EQ(data_folder(folder.path(), {.inputs = {{"age", {f32, {1}}}}}).train.columns.at("age"), HostTensor::of<float>({2, 1}, {3, 6}));
  for (const auto& [text, wanted] : {std::pair{"", "train.csv: is empty: a line of names and lines of numbers"}, {"\n \n", "has blank lines alone"}, {"a,b\n", "has a line of names and no rows: a line of names and lines of numbers are expected; save"}, {"a,a\n1,2\n", "line 1: 'a' is no name of a column, or stands there twice"}, {"a,b\n1\n", "line 2: 1 values for 2 columns: give each name of the first line one"},
                                     {"a,b\n1,2\n3,x\n", "line 3, column 'b': 'x' is no number"}, {"a,b\n1,\n", "line 2, column 'b': '' is no number: fill the cell in, or leave"}, {"a,b\n1,-1e999\n", "line 2, column 'b': '-1e999' is too large for a number"}}) {
    write_text(folder / "train.csv", text);
    EXPECT_NE(message_of([&] { data_folder(folder.path()); }).find(wanted), std::string::npos) << text;
  }
}

TEST(Tables, have_values_of_the_type_that_their_input_takes) {
  Folder folder;
  auto read = [&](const std::string& value, DType dtype) {
    write_text(folder / "a.csv", "x\n\n1\n" + value + "\n");
    return columns_of(read_table(folder / "a.csv"), {{"x", {dtype, {}}}});
  };
  for (const auto& [value, dtype, words, way_out] : {std::tuple{"1.797e308", f32, "line 4, column 'x' holds 1.797e+308, which is too large for f32", "an input of f64"},
                                                     {"-70000", f16, "holds -70000, which is too large for f16", "smaller unit"},
                                                     {"3000000000", i32, "line 4, column 'x' holds 3000000000, which is no i32", "write a smaller one"},
                                                     {"0.1", i64, "line 4, column 'x' holds 0.1, which is no i64", "round it"},
                                                     {"9007199254740993", i64, "line 4, column 'x' has more than 53 bits", "as i64 in an .npz"},
                                                     {"1e19", i64, "which is no i64", "write a smaller one"},
                                                     {"256", u8, "which is no u8", "write a smaller one"},
                                                     {"2", boolean, "which is no bool", "write 0 or 1"}})
    EXPECT_TRUE(says<UserError>([&, value = value, dtype = dtype] { read(value, dtype); }, {"a.csv, line 4", words, way_out})) << value;
  for (const auto& [value, dtype] : {std::pair{"1e-300", f32}, {"inf", f32}, {"0.1", f16}, {"1.797e308", f64}, {"3000000000", i64}, {"1", boolean}}) {
    DataSet data = read(value, dtype);
    fit_columns(data, {{"x", {dtype, {}}}});
    EXPECT_EQ(data.columns.at("x").dtype(), dtype) << value;
  }
  DataSet large = read("3000000000", i64);
  fit_columns(large, {{"x", {i64, {}}}});
  EXPECT_EQ(large.columns.at("x"), HostTensor::of<std::int64_t>({2}, {1, 3000000000}));
  DataSet array{{{"x", HostTensor::of<double>({1}, {1e300})}}};
  EXPECT_TRUE(says<UserError>([&] { fit_columns(array, {{"x", {f32, {}}}}); }, {"[data] row 0, column 'x' holds 1e+300, which is too large for f32"}));
}

TEST(Tables, with_words_for_labels_have_classes_sorted_by_name) {
  Folder folder;
  const InputRows inputs = {{"features", {f32, {2}}}, {"label", {i32, {}}}};
  auto write = [&](const std::string& train, const std::string& test) {
    write_text(folder / "train.csv", "a,b,label\n" + train);
    write_text(folder / "test.csv", "label,a,b\n" + test);
  };
  write("1,2,dog\n3,4,cat\n5,6,\"dog\"\n", "dog,7,8\n");
  const Splits data = data_folder(folder.path(), {.inputs = inputs});
  EXPECT_EQ(data.train.columns.at("label"), HostTensor::of<std::int32_t>({3}, {1, 0, 1}));
  EXPECT_EQ(data.train.columns.at("features"), HostTensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(data.test.columns.at("label"), HostTensor::of<std::int32_t>({1}, {1})) << "a class of the part to train on";
  EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
  for (const DataWanted& one : {DataWanted{.hold_out = 0.5}, DataWanted{.all_to_test = true}})
    EXPECT_EQ(data_folder(folder / "train.csv", one).classes, data.classes) << one.hold_out;
  const DataWanted known{.classes = {"dog", "cat"}, .inputs = inputs};
  EXPECT_EQ(data_folder(folder.path(), known).train.columns.at("label"), HostTensor::of<std::int32_t>({3}, {0, 1, 0}));
  EXPECT_EQ(data_folder(folder.path(), known).classes, known.classes);
  EXPECT_EQ(inspect_data(folder.path()).classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data_folder(folder.path(), {.inputs = {{"features", {f32, {2}}}}}).train.columns.size(), 1u) << "classes are no features";
  for (const auto& [train, test, wanted] : {std::tuple{"1,2,dog\n", "wolf,7,8\n", "column 'label': 'wolf' is no class that is trained on; those are dog"}, {"1,2,dog\n", "0,7,8\n", "numbers, and that of train.csv words: give the classes of both by words"},
                                          {"1,2,0\n", "dog,7,8\n", "words, and that of train.csv numbers"}, {"1,2,0\n3,4,dog\n", "0,7,8\n", "'dog' is a word, where '0' in line 2 is a number: give all classes by numbers, or all by words"},
                                          {"1,dog,0\n", "0,7,8\n", "line 2, column 'b': 'dog' is no number; words are read as classes in a column 'label': name it so"}, {"1,2,dog\n3,4,\n", "dog,7,8\n", "line 3, column 'label': has no class"}}) {
    write(train, test);
    EXPECT_NE(message_of([&] { data_folder(folder.path(), {.inputs = inputs}); }).find(wanted), std::string::npos) << train << message_of([&] { data_folder(folder.path(), {.inputs = inputs}); });
  }
  write("1,2,dog\n3,4,0\n", "0,7,8\ndog,7,8\n");
  EXPECT_EQ(data_folder(folder.path(), {.inputs = {{"features", {f32, {2}}}}}).train.columns.size(), 1u) << "labels that are not read";
  EXPECT_TRUE(data_folder(folder.path(), {.inputs = {{"features", {f32, {2}}}}}).classes.empty());
  write("1,2,2\n3,4,1\n", "x,7,8\n");  // among the classes, numbers too are words
  EXPECT_EQ(data_folder(folder.path(), {.classes = {"1", "2", "x"}, .inputs = inputs}).train.columns.at("label"), HostTensor::of<std::int32_t>({2}, {1, 0}));
  write("1,2,nan\n3,4,cat\n", "cat,7,8\n");
  EXPECT_EQ(data_folder(folder.path()).classes, (std::vector<std::string>{"cat", "nan"}));
  write("1,2,caf\xe9\n", "dog,7,8\n");
  EXPECT_NE(message_of([&] { data_folder(folder.path(), {.inputs = inputs}); }).find("'caf\\xe9' is not UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace belfry::test
