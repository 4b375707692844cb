#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/train/log_internal.h>
#include <belfry/frontends/train/means_internal.h>

namespace belfry {
namespace {

constexpr std::string_view kStepLine = "{\"step\": ", kEpochLine = "{\"epoch\": ";

struct Kept {
  std::uintmax_t bytes = 0;
  std::int64_t step = 0;  ///< the last one
  double seconds = 0;
};

/// The lines before the first of a later step, of an epoch behind those that are `over`, or of one that was not written to its end.
Kept lines_until(const std::string& path, std::int64_t step, std::int64_t over) {
  Kept out;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line) && !in.eof(); out.bytes += line.size() + 1) try {
      const JsonDocument document(line, path);
      if (const JsonValue* s = document.root().find("step")) {
        if (document.integer(*s) > step) break;
        out.step = document.integer(*s);
      } else if (const JsonValue* e = document.root().find("epoch"); e && document.integer(*e) > over) break;
      if (const JsonValue* s = document.root().find("seconds")) out.seconds = document.real(*s);
    } catch (const UserError&) {
      break;
    }
  return out;
}

/// A file that is no log is somebody's; one that is cut short within its first words may be of a start that was killed.
void refuse_no_log(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string begins(kEpochLine.size(), '\0');
  begins.resize(static_cast<std::size_t>(in.read(begins.data(), static_cast<std::streamsize>(begins.size())).gcount()));
  auto may_be = [&](std::string_view line) { return begins.starts_with(line) || line.starts_with(begins); };
  if (!may_be(kStepLine) && !may_be(kEpochLine)) throw UserError(fmt::format("{}: is no log of a training, and would be lost; name another file for the log", path));
}

Metrics times_of(const Progress& p) { return {{"epoch_seconds", p.seconds}, {"input_seconds", p.waited}, {"rows_per_second", p.rows_per_second}}; }

std::string line_of(std::string line, const Metrics& machine, const Metrics& metrics) {
  for (const auto& [name, value] : machine)
    if (!metrics.contains(name)) line += fmt::format(", {}: {}", json_text(name), value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value));
  for (const auto& [name, value] : metrics) line += fmt::format(", {}: {}", json_text(name), json_real(value));
  return line + "}";
}

}  // namespace

std::string name_taken(const std::vector<std::string>& names, LogLines lines) {
  constexpr std::string_view kOfEpochs[] = {"epoch", "steps", "epoch_seconds", "input_seconds", "rows_per_second"};
  constexpr std::string_view kOfLogs[] = {"step", "rows", "seconds", "step_seconds", "learning_rate", "cpu", "memory_bytes", "staleness"};  // besides
  auto among = [](const auto& all, std::string_view name) { return std::find(std::begin(all), std::end(all), name) != std::end(all); };
  auto is_held_out = [&](const std::string& name) { return name.starts_with("val_") && among(names, name.substr(4)); };
  auto is_logged = [&](const std::string& name) { return lines != LogLines::epochs && (among(kOfLogs, name) || name.starts_with("rows_per_second/")); };
  auto is_ours = [&](const std::string& name) { return among(kOfEpochs, name) || is_logged(name) || is_held_out(name); };
  auto taken = [&](const std::string& name) {
    const std::string drawn = lines == LogLines::charts ? scalar_tag(name) : name;
    return is_ours(name) || (drawn != name && (is_ours(drawn) || among(names, drawn)));
  };
  const auto at = std::find_if(names.begin(), names.end(), taken);
  return at == names.end() ? "" : *at;
}

std::string epoch_line(const Progress& p) { return line_of(fmt::format("{}{}, \"steps\": {}", kEpochLine, p.epoch + 1, p.batch), times_of(p), p.metrics); }

TrainingLog::TrainingLog(const FitOptions& options, std::int64_t before, std::int64_t over, std::map<std::string, double> device_shares)
    : path_(options.log), notice_(options.notice), device_shares_(std::move(device_shares)), sampled_(usage_now()), epoch_began_(sampled_) {
  std::error_code unread;  // opening it says why
  const bool there = !path_.empty() && std::filesystem::is_regular_file(path_, unread);
  if (there) refuse_no_log(path_);
  RunningMeans begun;  // of the epoch that a checkpoint stands within
  begun.take(options.notes);
  if (!options.tensorboard.empty()) charts_ = std::make_unique<TensorBoardLog>(options.tensorboard, before, begun.rows() > 0, options.notice);
  if (path_.empty()) return;
  if (before > 0 && there) {
    const Kept kept = lines_until(path_, before, over);
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path_);
    if (options.notice && size && kept.step < before)
      options.notice(fmt::format("{}: lacks the steps {} to {}, behind which the training goes on: it is another run's log, or was cut short", path_, kept.step + 1, before));
    if (kept.bytes != size) std::filesystem::resize_file(path_, kept.bytes, error);
    if (error) throw UserError(fmt::format("{}: the log cannot be cut off behind step {}: {}; name another file for it", path_, before, error.message()));
    earlier_ = last_step_ = kept.seconds;
  }
  replaces_ = before == 0 && there;
  open();
}

void TrainingLog::open() {
  if (!file_.open(path_)) throw UserError(fmt::format("{}: the log cannot be opened for writing: {}; name another file for it", path_, std::strerror(errno)));
}

double TrainingLog::seconds() const { return earlier_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

void TrainingLog::step(const Progress& p, std::int64_t rows) {
  if (path_.empty() && !charts_) return;
  const double now = seconds(), took = now - std::exchange(last_step_, now);
  Metrics machine = {{"step_seconds", took}};
  if (std::chrono::steady_clock::now() - sampled_.at >= std::chrono::seconds(1)) {
    const Usage usage = usage_now();
    machine["cpu"] = cores_between(sampled_, usage);
    machine["memory_bytes"] = static_cast<double>(usage.memory_bytes);
    sampled_ = usage;
  }
  Metrics metrics = p.last;
  if (p.learning_rate) metrics["learning_rate"] = *p.learning_rate;
  if (!path_.empty()) write(fmt::format("{}{}, \"epoch\": {}, \"rows\": {}, \"seconds\": {:.3f}", kStepLine, p.step, p.epoch + 1, rows, now), machine, metrics);
  if (!charts_) return;
  machine["rows_per_second"] = static_cast<double>(rows) / std::max(took, 1e-9);
  machine.insert(metrics.begin(), metrics.end());
  charts_->step(p.step, machine);
}

void TrainingLog::epoch(const Progress& p) {
  if (path_.empty() && !charts_) return;
  const Usage usage = usage_now();
  Metrics machine = times_of(p);
  machine["cpu"] = cores_between(epoch_began_, usage);
  machine["memory_bytes"] = static_cast<double>(usage.memory_bytes);
  Metrics rates;
  for (const auto& [device, share] : device_shares_) rates["rows_per_second/" + device] = p.rows_per_second * share;
  machine.insert(rates.begin(), rates.end());
  epoch_began_ = usage;
  if (!path_.empty()) write(fmt::format("{}{}, \"steps\": {}, \"seconds\": {:.3f}", kEpochLine, p.epoch + 1, p.batch, seconds()), machine, p.metrics);
  if (charts_) charts_->epoch(p.step, p.metrics, rates);
}

void TrainingLog::write(std::string line, const Metrics& machine, const Metrics& metrics) {
  std::error_code error;
  if (file_.gone()) {
    if (std::filesystem::is_regular_file(path_, error)) refuse_no_log(path_);
    if (const std::filesystem::path folder = std::filesystem::path(path_).parent_path(); !folder.empty()) make_folder(folder);
    open();
    replaces_ = false;
    if (notice_) notice_(fmt::format("{}: the log was removed while training, and its lines until here with it; it goes on anew", path_));
  }
  error.clear();
  if (std::exchange(replaces_, false)) std::filesystem::resize_file(path_, 0, error);
  if (error) throw UserError(fmt::format("{}: the log cannot be begun anew: {}; name another file for it", path_, error.message()));
  if (!file_.write(line_of(std::move(line), machine, metrics) + "\n")) throw UserError(fmt::format("{}: the log could not be written; its disk may be full", path_));
}

}  // namespace belfry
