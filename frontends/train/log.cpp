#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/train/log_internal.h>

namespace belfry {
namespace {

struct Kept {
  std::string text;
  double seconds = 0;
};

/// The lines before the first of a later step, or of one that was not written to its end.
Kept lines_until(const std::string& path, std::int64_t step) {
  Kept out;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line) && !in.eof(); out.text += line + '\n') try {
      const JsonDocument document(line, path);
      if (const JsonValue* s = document.root().find("step"); s && document.integer(*s) > step) break;
      if (const JsonValue* s = document.root().find("seconds")) out.seconds = document.real(*s);
    } catch (const UserError&) {
      break;
    }
  return out;
}

}  // namespace

TrainingLog::TrainingLog(const FitOptions& options, std::int64_t before, std::map<std::string, double> device_shares)
    : path_(options.log), device_shares_(std::move(device_shares)), sampled_(usage_now()), epoch_began_(sampled_) {
  if (!options.tensorboard.empty()) charts_ = std::make_unique<TensorBoardLog>(options.tensorboard, before);
  if (path_.empty()) return;
  if (before > 0 && std::filesystem::is_regular_file(path_)) {
    const Kept kept = lines_until(path_, before);
    if (kept.text.size() != std::filesystem::file_size(path_)) write_file(path_, kept.text);
    earlier_ = last_step_ = kept.seconds;
  }
  file_.open(path_, before > 0 ? std::ios::app : std::ios::trunc);
  if (!file_) throw UserError(fmt::format("{}: the log cannot be opened for writing", path_));
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
  if (!path_.empty()) write(fmt::format("{{\"step\": {}, \"epoch\": {}, \"rows\": {}, \"seconds\": {:.3f}", p.step, p.epoch + 1, rows, now), machine, metrics);
  if (!charts_) return;
  machine["rows_per_second"] = static_cast<double>(rows) / std::max(took, 1e-9);
  machine.insert(metrics.begin(), metrics.end());
  charts_->step(p.step, machine);
}

void TrainingLog::epoch(const Progress& p) {
  if (path_.empty() && !charts_) return;
  const Usage usage = usage_now();
  Metrics machine = {{"epoch_seconds", p.seconds}, {"input_seconds", p.waited}, {"rows_per_second", p.rows_per_second}, {"cpu", cores_between(epoch_began_, usage)}, {"memory_bytes", static_cast<double>(usage.memory_bytes)}};
  for (const auto& [device, share] : device_shares_) machine["rows_per_second/" + device] = p.rows_per_second * share;
  epoch_began_ = usage;
  if (!path_.empty()) write(fmt::format("{{\"epoch\": {}, \"steps\": {}, \"seconds\": {:.3f}", p.epoch + 1, p.batch, seconds()), machine, p.metrics);
  if (charts_) charts_->epoch(p.step, p.metrics);
}

void TrainingLog::write(std::string line, const Metrics& machine, const Metrics& metrics) {
  for (const auto& [name, value] : machine)
    if (!metrics.contains(name)) line += fmt::format(", {}: {}", json_text(name), value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value));
  for (const auto& [name, value] : metrics) line += fmt::format(", {}: {}", json_text(name), json_real(value));
  file_ << line << "}\n" << std::flush;
  if (!file_) throw UserError(fmt::format("{}: the log could not be written; its disk may be full", path_));
}

}  // namespace belfry
