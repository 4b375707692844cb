#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>

namespace belfry {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// What one training left in its folder.
struct RunRecord {
  std::string folder;
  Json config;
  std::vector<Json> steps, epochs;  ///< lines of its log
};

/// What log lines say of the machine and of where they stand; all else are losses and metrics.
bool is_metric(const std::string& key) {
  static const std::vector<std::string> others = {"epoch", "steps", "step", "rows", "seconds", "step_seconds", "epoch_seconds", "input_seconds", "cpu", "memory_bytes", "learning_rate"};
  return !key.starts_with("rows_per_second") && std::find(others.begin(), others.end(), key) == others.end();
}

double number(const Json& line, const std::string& key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : 0;
}

Json object_of(const std::string& text, const std::string& file) {
  Json out = Json::parse(text, nullptr, false);
  if (!out.is_object()) throw UserError(fmt::format("{}: holds no JSON object", file));
  return out;
}

/// Of steps, unless `all` are wanted, the last one alone, with the highest seconds and memory of any: long runs have many.
RunRecord read_run(const fs::path& folder, bool all) {
  RunRecord out{folder.string(), object_of(read_file(folder / "run.json"), (folder / "run.json").string()), {}, {}};
  const auto named = out.config.find("log");  // as seen from the folder, where it lies elsewhere
  const bool elsewhere = named != out.config.end() && named->is_string() && !named->get_ref<const std::string&>().empty();
  const fs::path log = folder / (elsewhere ? named->get<std::string>() : "log.jsonl");
  std::error_code error;
  if (!fs::is_regular_file(log, error)) {
    if (elsewhere) say(fmt::format("{}: its log is not at {}, where run.json has it: its epochs and times are left out\n", folder.string(), log.string()));
    return out;
  }
  std::ifstream lines(log);
  if (!lines) throw UserError(fmt::format("{}: cannot be read", log.string()));
  std::string line;
  for (int count = 1; std::getline(lines, line); ++count) {
    if (lines.eof()) break;  // it is being written
    Json one = object_of(line, fmt::format("{}:{}", log.string(), count));
    if (!all && one.contains("step") && !out.steps.empty()) {
      for (const char* key : {"seconds", "memory_bytes"}) one[key] = std::max(number(one, key), number(out.steps[0], key));
      out.steps[0] = std::move(one);
    } else (one.contains("step") ? out.steps : out.epochs).push_back(std::move(one));
  }
  return out;
}

/// The folders themselves, or the run folders in them.
std::vector<RunRecord> runs_in(const std::vector<std::string>& folders, bool all) {
  std::vector<RunRecord> out;
  for (const std::string& f : folders) {
    std::vector<fs::path> found;
    refuse_closed(f);
    if (fs::exists(fs::path(f) / "run.json")) found.push_back(f);
    else
      for (const auto& entry : fs::directory_iterator(f)) {
        std::error_code error;
        if (fs::exists(entry.path() / "run.json", error)) found.push_back(entry.path());
        if (error == std::errc::permission_denied) say(fmt::format("{}: is left out: {}; {}\n", entry.path().string(), error.message(), who_opens(entry.path())));
      }
    if (found.empty()) throw UserError(fmt::format("{}: neither it nor a folder in it has a run.json; belfry train --out makes one", f));
    std::sort(found.begin(), found.end());
    for (const fs::path& p : found) out.push_back(read_run(p, all));
  }
  return out;
}

std::string text_of(const Json& v) { return v.is_string() ? v.get<std::string>() : v.is_number_float() ? fmt::format("{:.4g}", v.get<double>()) : v.dump(); }

/// An epoch's metric over the epochs, from its lowest to its highest.
std::string curve(const std::vector<Json>& epochs, const std::string& metric) {
  static const char* const kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kWidth = 24;
  std::vector<double> values;
  for (const Json& e : epochs)
    if (e.contains(metric) && e[metric].is_number()) values.push_back(e[metric].get<double>());
  if (values.empty()) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double from = *low, range = *high - *low;
  std::string out;
  const std::size_t n = std::min(values.size(), kWidth);
  for (std::size_t i = 0; i < n; ++i) {
    const double v = values[n == 1 ? 0 : i * (values.size() - 1) / (n - 1)];
    out += kBars[range > 0 ? std::min(7, static_cast<int>(8 * (v - from) / range)) : 0];
  }
  return out;
}

using Row = std::vector<std::pair<std::string, std::string>>;  ///< column and cell

/// What a run was told; the rest is for those who serve it.
bool is_setting(const std::string& key) { return key != "classes" && key != "features" && key != "pixels" && key != "state" && key != "checkpoints" && key != "log"; }

/// The settings that are not the same in all runs.
std::vector<std::string> differing(const std::vector<RunRecord>& runs) {
  std::vector<std::string> out;
  for (const RunRecord& r : runs)
    for (const auto& one : r.config.items()) {
      const std::string& key = one.key();
      auto differs = [&](const RunRecord& other) { return !other.config.contains(key) || other.config[key] != one.value(); };
      if (is_setting(key) && std::find(out.begin(), out.end(), key) == out.end() && std::any_of(runs.begin(), runs.end(), differs)) out.push_back(key);
    }
  return out;
}

Row row_of(const RunRecord& run, const std::vector<std::string>& settings) {
  Row out = {{"run", run.folder}};
  constexpr std::size_t kHash = 8;  // enough of one to tell runs apart
  for (const std::string& key : settings) out.emplace_back(key == "steps" || key == "epochs" ? "--" + key : key, !run.config.contains(key) ? "-" : key == "arithmetic_hash" ? text_of(run.config[key]).substr(0, kHash) : text_of(run.config[key]));
  double seconds = 0, rate = 0, cpu = 0, memory = 0;
  for (const auto* lines : {&run.steps, &run.epochs})
    for (const Json& l : *lines) seconds = std::max(seconds, number(l, "seconds")), memory = std::max(memory, number(l, "memory_bytes"));
  for (const Json& e : run.epochs) rate += number(e, "rows_per_second"), cpu += number(e, "cpu");
  const double count = std::max<double>(1, static_cast<double>(run.epochs.size()));
  std::int64_t epochs = 0;  // of a run that goes on from another's checkpoint the log has the last ones alone
  for (const Json& e : run.epochs) epochs = std::max(epochs, static_cast<std::int64_t>(number(e, "epoch")));
  const bool logged = !run.epochs.empty() || !run.steps.empty();  // a program's own run may have no log
  out.emplace_back("epochs", logged ? std::to_string(epochs) : "-");
  out.emplace_back("steps", !logged ? "-" : std::to_string(run.steps.empty() ? 0 : static_cast<std::int64_t>(number(run.steps.back(), "step"))));  // that were done, beside what --steps asked for
  out.emplace_back("time", logged ? fmt::format("{:.1f} s", seconds) : "-");
  out.emplace_back("rows/s", logged ? fmt::format("{:.0f}", rate / count) : "-");
  out.emplace_back("cores", logged ? fmt::format("{:.2f}", cpu / count) : "-");
  out.emplace_back("memory", logged ? fmt::format("{:.0f} MiB", memory / (1 << 20)) : "-");
  if (run.epochs.empty()) return out;
  const Json& last = run.epochs.back();
  std::string watched;
  for (const auto& [key, value] : last.items()) {
    if (!is_metric(key)) continue;
    out.emplace_back(key, text_of(value));
    if (key.find("loss") != std::string::npos && !(watched.starts_with("val_") && !key.starts_with("val_"))) watched = key;
  }
  if (!watched.empty()) out.emplace_back("curve of " + watched, curve(run.epochs, watched));
  return out;
}

std::size_t width_of(const std::string& text) {  // of UTF-8: bytes that begin a character
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const Row& r : rows)
    for (const auto& [column, cell] : r)
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
  auto cell = [](const Row& r, const std::string& column) {
    const auto at = std::find_if(r.begin(), r.end(), [&](const auto& c) { return c.first == column; });
    return at == r.end() ? std::string("-") : shown(at->second);
  };
  std::vector<std::string> lines(rows.size() + 1);
  for (const std::string& column : columns) {
    std::size_t width = width_of(shown(column));
    for (const Row& r : rows) width = std::max(width, width_of(cell(r, column)));
    auto add = [&](std::string& line, const std::string& text) { line += (line.empty() ? "" : "  ") + text + std::string(width - width_of(text), ' '); };
    add(lines[0], shown(column));
    for (std::size_t i = 0; i < rows.size(); ++i) add(lines[i + 1], cell(rows[i], column));
  }
  std::string out;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

void compare_runs(const std::vector<std::string>& folders, bool json) {
  const std::vector<RunRecord> runs = runs_in(folders, json);
  if (json) {
    Json out = Json::array();
    for (const RunRecord& r : runs) out.push_back({{"run", printable(r.folder)}, {"config", r.config}, {"epochs", r.epochs}, {"steps", r.steps}});
    std::cout << out.dump(1) << "\n";
    return;
  }
  const std::vector<std::string> settings = differing(runs);
  std::string same;
  for (const auto& [key, value] : runs[0].config.items())
    if (is_setting(key) && std::find(settings.begin(), settings.end(), key) == settings.end()) same += fmt::format("{}{} {}", same.empty() ? "" : ", ", key, text_of(value));
  if (!same.empty()) std::cout << (runs.size() == 1 ? "" : "the same in all: ") << shown(same) << "\n";
  std::vector<Row> rows;
  for (const RunRecord& r : runs) rows.push_back(row_of(r, settings));
  std::cout << table(rows);
}

}  // namespace

void add_runs_verb(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> folders;
    bool json = false;
  };
  auto o = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("runs", "Trainings side by side: what they were told otherwise, their curves, time, cores and memory");
  verb->footer("Example: belfry runs run1 run2");
  verb->add_option("folders", o->folders, "what belfry train --out wrote, or folders of such")->required()->check(is_folder());
  verb->add_flag("--json", o->json, "all of their logs, for machines");
  verb->callback([o] { compare_runs(o->folders, o->json); });
}

}  // namespace belfry
