#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/train_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/data/digits.h>
#include <belfry/frontends/data/fetch.h>
#include <belfry/frontends/data/inspect.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/records.h>

namespace belfry {

namespace {

using Json = nlohmann::ordered_json;

/// A list of data sets of one's own, in place of those that are known.
std::vector<PublishedSet> read_list(const std::string& file) {
  std::vector<PublishedSet> out;
  try {
    const Json list = Json::parse(read_file(file));
    for (const auto& [name, set] : list.items()) {
      PublishedSet& one = out.emplace_back(PublishedSet{name, set.value("about", ""), {}});
      for (const Json& f : set.at("files")) {
        one.files.push_back({f.at("name").get<std::string>(), f.at("bytes").get<std::int64_t>(), f.at("sha256").get<std::string>(), f.at("urls").get<std::vector<std::string>>(), f.value("unpack", false)});
        const std::string& place = one.files.back().name;
        if (place.empty() || place[0] == '.' || place.find('/') != place.npos) throw UserError(fmt::format("{}: '{}' is no name of a file", file, place));
      }
    }
  } catch (const Json::exception& e) {
    throw UserError(fmt::format("{}: no list of data sets: {}", file, e.what()));
  }
  return out;
}

void print_fetched(const PublishedSet& set, const std::string& dir) {
  std::vector<std::string> files;
  for (const PublishedFile& f : set.files) {
    LineWriter line;
    line.add("name", json_text(f.name));
    line.add("bytes", std::to_string(f.bytes));
    line.add("sha256", json_text(f.sha256));
    files.push_back(line.text());
  }
  std::cout << json_file({"\"name\": " + json_text(set.name), "\"data\": " + json_text(printable(dir)), "\"files\": " + json_lines(files)});
}

void fetch(const std::string& name, const std::string& out, const std::string& list, bool json) {
  const std::vector<PublishedSet> sets = list.empty() ? published_sets() : read_list(list);
  std::vector<std::string> names;
  for (const PublishedSet& s : sets) {
    if (s.name == name) {
      const std::string dir = out.empty() ? name : out;
      fetch_data(s, dir, [](const std::string& text) { say(text + "\n"); });
      say(fmt::format("{} is in {}; belfry data inspect {} shows it\n", name, dir, dir));
      if (json) print_fetched(s, dir);
      return;
    }
    names.push_back(s.name);
  }
  throw WrongUse(fmt::format("there is no data set '{}'{}; there are {}", name, did_you_mean(name, names), fmt::join(names, ", ")));
}

Json json_of(const ColumnFacts& c) {
  Json out = {{"dtype", std::string(name_of(c.type.dtype))}, {"shape", c.type.shape}};
  if (c.least_height) out["least_size"] = {c.least_height, c.least_width};
  if (!c.mean.empty()) out["mean"] = c.mean, out["deviation"] = c.deviation;
  Json classes = Json::object();
  for (const auto& [value, rows] : c.classes) classes[std::to_string(value)] = rows;
  if (!c.classes.empty()) out["classes"] = classes;
  if (!c.first.empty()) out["first"] = c.first;
  return out;
}

Json json_of(const DataFacts& facts) {
  Json out = {{"kind", name_of(facts.kind)}};
  if (!facts.classes.empty()) out["classes"] = facts.classes;
  for (const SplitFacts& s : facts.splits) {
    Json& split = out["splits"][s.name] = {{"rows", s.rows}};
    for (const auto& [name, c] : s.columns) split["columns"][printable(name)] = json_of(c);
  }
  return out;
}

std::string text_of(const std::string& name, const ColumnFacts& c, const std::vector<std::string>& names) {
  std::string out = fmt::format("  {}  {}", shown(name), to_string(c.type));
  if (c.least_height) out += fmt::format(", the least {} x {}", c.least_height, c.least_width);
  if (!c.mean.empty()) out += fmt::format("  mean {:.4f}, deviation {:.4f}{}", fmt::join(c.mean, " "), fmt::join(c.deviation, " "), c.type.dtype == u8 ? " of bytes / 255" : "");
  if (!c.classes.empty()) {
    out += fmt::format("  {} classes", c.classes.size());
    constexpr std::size_t kShown = 20;
    if (c.classes.size() <= kShown)
      for (const char* before = ": "; const auto& [value, rows] : c.classes) {
        const bool named = name == "label" && value >= 0 && value < static_cast<std::int64_t>(names.size());
        out += fmt::format("{}{} {}", before, named ? fmt::format("{} ({})", value, listed(names[static_cast<std::size_t>(value)])) : std::to_string(value), rows);
        before = ", ";
      }
  }
  if (!c.first.empty()) out += fmt::format("; first {}", fmt::join(c.first, " "));
  return out + "\n";
}

/// "pixel" of "pixel17".
std::string without_number(const std::string& name) { return name.substr(0, name.find_last_not_of("0123456789") + 1); }

/// Of columns that are numbered, and as many rows of one type.
std::string text_of(const std::string& stem, const std::vector<std::pair<std::string, ColumnFacts>>& all) {
  double mean = 0, square = 0;
  const auto count = static_cast<double>(all.size());
  std::vector<std::int64_t> numbers;
  for (const auto& [name, c] : all) {
    mean += c.mean[0] / count;
    square += (c.mean[0] * c.mean[0] + c.deviation[0] * c.deviation[0]) / count;
    numbers.push_back(std::atoll(name.c_str() + stem.size()));
  }
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  const std::string type = to_string(all[0].second.type);
  return fmt::format("  {0}{1} … {0}{2}  {3} columns of {4}  mean {5:.4f}, deviation {6:.4f}\n", shown(stem), *least, *most, all.size(), type, mean, std::isnan(mean) ? mean : std::sqrt(std::max(0.0, square - mean * mean)));
}

/// A line for each column; for numbered ones of one type, as a pixel each has, one together.
std::string text_of(const SplitFacts& split, const std::vector<std::string>& classes) {
  constexpr std::size_t kMany = 8;
  std::map<std::string, std::vector<std::pair<std::string, ColumnFacts>>> numbered;
  for (const auto& [name, c] : split.columns) {
    const std::string stem = without_number(name);
    const bool fits = stem.size() < name.size() && c.mean.size() == 1;
    if (fits && (!numbered.contains(stem) || numbered[stem][0].second.type == c.type)) numbered[stem].emplace_back(name, c);
  }
  std::string out;
  for (const auto& [name, c] : split.columns) {
    const auto group = numbered.find(without_number(name));
    const bool folds = group != numbered.end() && group->second.size() >= kMany && c.mean.size() == 1 && c.type == group->second[0].second.type;
    if (!folds || name == group->first) out += text_of(name, c, classes);
    else if (name == group->second[0].first) out += text_of(group->first, group->second);
  }
  return out;
}

void inspect(const std::string& path, bool json) {
  const DataFacts facts = inspect_data(path);
  if (json) {
    std::cout << json_of(facts).dump(1) << "\n";
    return;
  }
  if (facts.kind == DataKind::photos) say_passed_over(path);
  std::cout << name_of(facts.kind) << "\n";
  for (const SplitFacts& s : facts.splits) {
    std::cout << fmt::format("{}  {} {}\n", s.name, s.rows, facts.kind == DataKind::text ? "bytes" : "rows");
    std::cout << text_of(s, facts.classes);
  }
}

void add_digits_verb(CLI::App& data) {
  struct DigitsArguments {
    std::string out;
    std::int64_t train = 12000, test = 2000;
    std::uint64_t seed = 1;
    bool json = false;
  };
  auto o = std::make_shared<DigitsArguments>();
  CLI::App* verb = data.add_subcommand("digits", "Draw handwriting-like digits as the four IDX files of MNIST");
  verb->footer("Example: belfry data digits --out digits");
  verb->add_option("--out", o->out, "a folder")->required();
  constexpr std::uint64_t kMostDigits = 1'000'000;  // that lie in memory while they are drawn
  verb->add_option("--train", o->train, fmt::format("training images; by default {}", o->train))->check(whole(1, kMostDigits));
  verb->add_option("--test", o->test, fmt::format("test images; by default {}", o->test))->check(whole(1, kMostDigits));
  verb->add_option("--seed", o->seed, "of the drawing")->check(whole(0, UINT64_MAX));
  verb->add_flag("--json", o->json, "what was drawn, for machines: data (the folder), train, test");
  verb->callback([o] {
    draw_digits(o->out, o->train, o->test, o->seed);
    say(fmt::format("drew {} training and {} test digits into {}\n", o->train, o->test, o->out));
    if (o->json) std::cout << fmt::format("{{\"data\": {}, \"train\": {}, \"test\": {}}}\n", json_text(printable(o->out)), o->train, o->test);
  });
}

}  // namespace

void add_data_verb(CLI::App& app, const LibrarySource&) {
  CLI::App* data = app.add_subcommand("data", "Data sets: fetched, inspected, drawn");
  data->footer("Example: belfry data digits --out digits");
  data->require_subcommand(0, 1);
  data->callback([data] {
    if (data->get_subcommands().empty()) throw WrongUse("data wants one of fetch, inspect and digits");
  });

  std::string known;
  std::vector<std::string> names;
  for (const PublishedSet& s : published_sets()) known += fmt::format("\n  {:14} {}", s.name, s.about), names.push_back(s.name);
  struct DataArguments {
    std::string name, out, list, path;
    bool json = false;
  };
  auto o = std::make_shared<DataArguments>();
  CLI::App* fetch_verb = data->add_subcommand("fetch", "Fetch a published data set; its checksums are checked");
  fetch_verb->footer("Data sets:" + known + "\nExample: belfry data fetch mnist --out mnist");
  fetch_verb->add_option("name", o->name, "of a data set")->required()->check(offers(names));
  fetch_verb->add_option("--out", o->out, "a folder; by default the data set's name");
  fetch_verb->add_option("--list", o->list, "a JSON file of data sets of your own: {\"NAME\": {\"files\": [{\"name\", \"bytes\", \"sha256\", \"urls\": [...], \"unpack\": false}]}}")->check(is_file());
  fetch_verb->add_flag("--json", o->json, "what lies there now, for machines: name, data (the folder), files with bytes and sha256");
  fetch_verb->callback([o] { fetch(o->name, o->out, o->list, o->json); });

  CLI::App* inspect_verb = data->add_subcommand("inspect", "What lies in a folder or file: kind, rows, types, classes, mean and deviation");
  inspect_verb->footer("Example: belfry data inspect digits");
  inspect_verb->add_option("path", o->path, "what belfry train --data takes")->required()->check(is_data());
  inspect_verb->add_flag("--json", o->json, "for machines");
  inspect_verb->callback([o] { inspect(o->path, o->json); });
  add_digits_verb(*data);
}

}  // namespace belfry
