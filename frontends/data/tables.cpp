#include <belfry/frontends/data/tables.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/data/fits_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/numbers.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, last - first + 1);
}

/// The place behind a cell whose quotes begin here; nothing where they are not closed before a comma or the line's end.
std::optional<std::size_t> read_quoted(std::string_view line, std::size_t at, std::string& cell) {
  for (++at; at < line.size(); ++at) {
    if (line[at] != '"') cell += line[at];
    else if (line.substr(at + 1).starts_with('"')) cell += line[++at];  // of two, one
    else {
      at = std::min(line.find_first_not_of(" \t\r", at + 1), line.size());
      return at == line.size() || line[at] == ',' ? std::optional(at) : std::nullopt;
    }
  }
  return {};
}

/// As much as an error has room for.
std::string cut(std::string_view text) { return shown_start(text, 40); }

/// As RFC 4180 has them; `place` says where the i-th cell stands.
template <class Place>
std::vector<std::string> cells_of(std::string_view line, const Place& place) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t first = line.find_first_not_of(" \t", at);
    std::string cell;
    std::optional<std::size_t> end;
    if (first != line.npos && line[first] == '"') {
      if (end = read_quoted(line, first, cell); !end)
        throw UserError(
            fmt::format("{}: '{}' begins with a quote, and none ends it right before a comma or the end of the line: close it in the same line; "
                        "a quote within quotes stands twice (\"\")",
                        place(out.size()), cut(trimmed(line.substr(first)))));
    } else {
      end = std::min(line.find(',', at), line.size());
      cell = trimmed(line.substr(at, *end - at));
    }
    out.push_back(std::move(cell));
    at = *end + 1;
  }
  return out;
}

constexpr const char* kLabel = "label";

std::optional<double> number_in(std::string_view text) {
  double x = 0;
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);  // which from_chars does not take
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (stop != text.data() + text.size()) return {};
  if (error == std::errc::result_out_of_range) return real_at(std::string(text).c_str());  // 0, or infinite
  return error == std::errc() ? std::optional(x) : std::nullopt;
}

/// Written in digits, and yet infinite.
bool is_too_large(std::string_view text, const std::optional<double>& x) { return x && std::isinf(*x) && text.find_first_of("0123456789") != text.npos; }

/// Behind the place of a cell that holds no number.
std::string why_no_number(const std::string& cell, bool too_large) {
  if (too_large) return fmt::format("'{}' is too large for a number (f64): bring the column to a smaller unit, or leave the row out", cut(cell));
  if (cell.empty()) return "'' is no number: fill the cell in, or leave the row or the column out";
  return fmt::format("'{}' is no number; words are read as classes in a column '{}': name it so if they are, or leave the column out", cut(cell), kLabel);
}

std::vector<std::string> names_of(std::string_view line, const std::string& where) {
  for (const auto& [mark, name] : {std::pair{';', "semicolons"}, {'\t', "tabs"}})
    if (line.find(',') == line.npos && trimmed(line).find(mark) != line.npos)
      throw UserError(fmt::format("{}: there are {} between the values, where commas are expected: save the table with commas", where, name));
  const std::vector<std::string> cells = cells_of(line, [&](std::size_t i) { return fmt::format("{}, column {}", where, i + 1); });
  if (std::all_of(cells.begin(), cells.end(), [](const std::string& c) { return number_in(c).has_value(); }))
    throw UserError(fmt::format("{}: holds numbers ({}), where the names of the columns are expected: put a line of names before it", where, cut(line)));
  std::vector<std::string> out;
  std::set<std::string_view> seen;
  for (const std::string& c : cells) {
    if (c.empty() || !seen.insert(c).second)
      throw UserError(fmt::format("{}: '{}' is no name of a column, or stands there twice; the first line names the columns", where, cut(c)));
    if (!json_quoted(c)) throw UserError(fmt::format("{}: the column '{}' is not UTF-8, as files of runs are: save the table as UTF-8", where, cut(c)));
    out.emplace_back(c);
  }
  return out;
}

/// Where all but one of the others would do: the label under another name perhaps.
std::string perhaps_label(const std::vector<std::string>& others, const LocalType& row, const InputRows& inputs) {
  if (static_cast<std::int64_t>(others.size()) != row.elements() + 1 || !inputs.contains("label")) return "";
  static const std::vector<std::string> words = {"label", "labels", "digit", "class", "target", "y", "species"};
  for (const std::string& name : others) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (std::find(words.begin(), words.end(), lower) != words.end()) return fmt::format("; if '{}' is the label, name it 'label'", cut(name));
  }
  return "; if one of them is the label, name it 'label'";
}

void refuse_other_encodings(std::string_view text, const std::filesystem::path& path) {
  constexpr const char* kWayOut = "and tables are UTF-8: save it as that (of spreadsheets: CSV UTF-8)";
  for (std::string_view mark : {"\xFF\xFE", "\xFE\xFF"})
    if (text.starts_with(mark)) throw UserError(fmt::format("{}: begins with the byte order mark {} of UTF-16, {}", path.string(), shown(mark), kWayOut));
  if (const std::size_t nul = text.find('\0'); nul != text.npos) throw UserError(fmt::format("{}: byte {} is NUL, as in UTF-16, {}", path.string(), nul, kWayOut));
}

/// Lines of a table that hold something, with their numbers. They end as on Unix and Windows, or all as on old Macs.
struct TableLines {
  explicit TableLines(std::string_view all) : text(all), last(all.substr(0, all.size() - all.ends_with('\n')).find('\n') == all.npos ? '\r' : '\n') {
    if (last == '\r' && text.ends_with('\n')) text.remove_suffix(1);
  }
  std::string_view text;
  char last;
  std::size_t at = 0;
  std::int64_t number = 0;
  bool next(std::string_view& line) {
    while (at < text.size()) {
      const std::size_t end = std::min(text.find(last, at), text.size());
      line = text.substr(at, end - at);
      at = end + 1;
      ++number;
      if (!trimmed(line).empty()) return true;
    }
    return false;
  }
};

/// Of the first line, the names of the columns.
std::vector<std::string> heading(TableLines& lines, const std::filesystem::path& path) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // that some programs begin UTF-8 with
  std::string_view line;
  if (!lines.next(line)) return {};
  return names_of(line.starts_with(kMark) ? line.substr(kMark.size()) : line, fmt::format("{}, line {}", path.string(), lines.number));
}

/// The labels of a table as they stand there: words, unless all are numbers that are no known classes.
class Labels {
 public:
  Labels(const std::filesystem::path& path, const std::vector<std::string>& known) : path_(path), classes_(known), known_(known.begin(), known.end()) {}
  void add(std::string_view cell, bool number, std::int64_t line) {
    Seen& first = number ? number_ : word_;
    if (!first.line) first = {std::string(cell), line};
    if (!unknown_.line && !known_.contains(std::string(cell))) unknown_ = {std::string(cell), line};
    if (known_.empty() && !word_.line) return;
    if (known_.empty() && number_.line && wrong_.empty())
      wrong_ = fmt::format("{}: '{}' is a {}, where '{}' in line {} is a {}: give all classes by numbers, or all by words", where(line), cut(cell), number ? "number" : "word", cut(number ? word_.text : number_.text),
                           number ? word_.line : number_.line, number ? "word" : "number");
    if (cell.empty() && wrong_.empty()) wrong_ = where(line) + ": has no class; give the row one, or leave it out";
    if (!json_quoted(cell) && wrong_.empty()) wrong_ = fmt::format("{}: '{}' is not UTF-8, as files of runs and answers are: save the table as UTF-8", where(line), cut(cell));
    words_.emplace_back(cell);
  }
  /// Empty: they are numbers.
  const std::vector<std::string>& words() {
    if (known_.empty() || !unknown_.line) return words_;
    if (word_.line && wrong_.empty())
      wrong_ = fmt::format("{}: '{}' is no class that is trained on; those are {}: write one of them, leave the row out, or train with rows of this class", where(unknown_.line), cut(unknown_.text), shown_start(listed(classes_), 200));
    words_.clear();
    return words_;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  struct Seen {
    std::string text;
    std::int64_t line = 0;
  };
  std::string where(std::int64_t line) const { return fmt::format("{}, line {}, column '{}'", path_.string(), line, kLabel); }
  const std::filesystem::path& path_;
  const std::vector<std::string>& classes_;
  std::set<std::string> known_;
  std::vector<std::string> words_;
  std::string wrong_;
  Seen number_, word_, unknown_;  // the first ones
};

/// The places of words among the classes.
void number_words(Table& table, const std::vector<std::string>& words, std::size_t column, const std::vector<std::string>& known) {
  const std::set<std::string> sorted(words.begin(), words.end());
  table.classes = known.empty() ? std::vector<std::string>(sorted.begin(), sorted.end()) : known;
  std::map<std::string, std::size_t> places;
  for (const std::string& name : table.classes) places.emplace(name, places.size());
  for (std::size_t r = 0; r < words.size(); ++r) table.values.data<double>()[r * table.names.size() + column] = static_cast<double>(places.at(words[r]));
}

}  // namespace

Table read_table(const std::filesystem::path& path, const std::vector<std::string>& classes) {
  const DefaultFloats floats;
  const std::string text = read_file(path, std::size_t{1} << 32);
  refuse_other_encodings(text, path);
  TableLines lines(text);
  Table out{.path = path};
  out.names = heading(lines, path);
  const auto label = static_cast<std::size_t>(std::find(out.names.begin(), out.names.end(), kLabel) - out.names.begin());
  std::vector<double> values;
  Labels labels(path, classes);
  for (std::string_view line; lines.next(line); out.lines.push_back(lines.number)) {
    const std::vector<std::string> cells = cells_of(line, [&](std::size_t i) {
      return fmt::format("{}, line {}, column '{}'", path.string(), lines.number, i < out.names.size() ? cut(out.names[i]) : std::to_string(i + 1));
    });
    if (cells.size() != out.names.size()) throw UserError(fmt::format("{}, line {}: {} values for {} columns: give each name of the first line one, and put text with commas in quotes", path.string(), lines.number, cells.size(), out.names.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::optional<double> x = number_in(cells[i]);
      const bool is_number = x && (i != label || std::isfinite(*x));  // of labels "nan" and "inf" may be words
      if (i == label) {
        labels.add(cells[i], is_number, lines.number);
      } else if (const bool too_large = is_too_large(cells[i], x); !is_number || too_large) {
        throw UserError(fmt::format("{}, line {}, column '{}': {}", path.string(), lines.number, cut(out.names[i]), why_no_number(cells[i], too_large)));
      }
      values.push_back(is_number ? *x : 0);
    }
  }
  if (out.lines.empty())
    throw UserError(fmt::format("{}: {}: a line of names and lines of numbers are expected; save the table anew with its rows", path.string(),
                                text.empty() ? "is empty" : out.names.empty() ? "has blank lines alone" : "has a line of names and no rows"));
  out.values = HostTensor::of<double>({static_cast<std::int64_t>(out.lines.size()), static_cast<std::int64_t>(out.names.size())}, values);
  if (const std::vector<std::string>& words = labels.words(); !words.empty() && labels.wrong().empty()) number_words(out, words, label, classes);
  out.wrong_labels = labels.wrong();
  return out;
}

namespace {

constexpr double kInexact = 0x1p53;  // whole numbers from here on may have been rounded to f64

void refuse_misfits(const Table& table, const std::vector<std::size_t>& columns, DType dtype) {
  const std::span<const double> values = table.values.data<double>();
  visit_stored(dtype, [&]<class T>() {
    for (std::size_t r = 0; r < table.lines.size(); ++r)
      for (std::size_t c : columns)
        if (const double x = values[r * table.names.size() + c]; !can_hold<T>(x) || (std::is_integral_v<T> && std::abs(x) >= kInexact))
          throw UserError(fmt::format("{}, line {}, column '{}' {}", table.path.string(), table.lines[r], cut(table.names[c]),
                                      can_hold<T>(x) ? "has more than 53 bits, to which tables are read: number it anew, or give it as i64 in an .npz" : why_no_value(x, dtype)));
  });
}

}  // namespace

std::vector<std::string> features_of(const Table& table, const InputRows& inputs) {
  std::vector<std::string> out;
  for (const std::string& name : table.names)
    if (const bool is_class = name == kLabel && !(table.classes.empty() && table.wrong_labels.empty()); !is_class && !inputs.empty() && !inputs.contains(name)) out.push_back(name);
  return out;
}

void order_features(Table& table, const InputRows& inputs, const std::vector<std::string>& features) {
  const std::vector<std::string> here = features_of(table, inputs);
  if (here == features || here.empty()) return;
  const std::set<std::string_view> there(here.begin(), here.end()), wanted(features.begin(), features.end());
  for (const std::string& name : features)
    if (!there.contains(name)) throw UserError(fmt::format("{}: lacks the column '{}', which is among those that the net learns from: {}; name the columns so", table.path.string(), cut(name), shown_start(listed(features), 200)));
  for (const std::string& name : here)
    if (!wanted.contains(name)) throw UserError(fmt::format("{}: the column '{}' is none of those that the net learns from, {}: leave it out", table.path.string(), cut(name), shown_start(listed(features), 200)));
  const std::size_t width = table.names.size();
  const HostTensor as_read = table.values;
  const std::vector<std::string> names = table.names;
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < width; ++i) places.emplace(names[i], i);
  std::vector<std::pair<std::size_t, std::size_t>> moves;  // to, from
  for (std::size_t i = 0; i < width; ++i)
    if (there.contains(names[i])) table.names[i] = features[moves.size()], moves.emplace_back(i, places.at(table.names[i]));
  const std::span<const double> from = as_read.data<double>();
  const std::span<double> to = table.values.data<double>();
  for (std::size_t row = 0; row < from.size(); row += width)
    for (auto [i, k] : moves) to[row + i] = from[row + k];
}

DataSet columns_of(const Table& table, const InputRows& inputs) {
  const std::int64_t rows = table.values.shape()[0];
  const std::size_t width = table.names.size();
  std::map<std::string, std::vector<std::size_t>> wanted;
  const std::vector<std::string> unnamed = features_of(table, inputs);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < width; ++i) {
    if (inputs.empty() || inputs.contains(table.names[i])) wanted[table.names[i]] = {i};
    else if (others.size() < unnamed.size() && unnamed[others.size()] == table.names[i]) others.push_back(i);
  }
  std::vector<std::pair<std::string, LocalType>> largest(inputs.begin(), inputs.end());  // which such columns are most likely of
  std::stable_sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) { return a.second.elements() > b.second.elements(); });
  for (const auto& [name, row] : largest)
    if (!wanted.contains(name) && row.elements() == static_cast<std::int64_t>(others.size())) wanted[name] = std::exchange(others, {});
  for (const auto& [name, row] : largest)
    if (!wanted.contains(name) && !others.empty()) {
      throw UserError(fmt::format("[data] the input '{}' has {} values a row, {}, and the table has {} columns that no input is named after ({}{}): it needs one column '{}', or {} others{}",
                                  name, row.elements(),
                                  to_string(row), others.size(), cut(unnamed[0]), others.size() > 1 ? " to " + cut(unnamed.back()) : "", name, row.elements(), perhaps_label(unnamed, row, inputs)));
    }
  if (!table.wrong_labels.empty() && wanted.contains(kLabel)) throw UserError(table.wrong_labels);
  DataSet out;
  for (const auto& [name, places] : wanted) {
    if (const auto input = inputs.find(name); input != inputs.end()) refuse_misfits(table, places, input->second.dtype);
    HostTensor column(f64, places.size() == 1 ? Extents{rows} : Extents{rows, static_cast<std::int64_t>(places.size())});
    for (std::size_t r = 0, k = 0; r < static_cast<std::size_t>(rows); ++r)
      for (std::size_t p : places) column.data<double>()[k++] = table.values.data<double>()[r * width + p];
    out.columns.emplace(name, std::move(column));
  }
  if (out.columns.empty()) throw UserError(fmt::format("[data] the table's columns {} fit none of the graph's inputs", cut(fmt::format("{}", fmt::join(table.names, ", ")))));
  return out;
}

}  // namespace belfry
