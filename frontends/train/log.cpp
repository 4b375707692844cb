#include <fmt/format.h>

#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/train/log_internal.h>

namespace belfry {

TrainingLog::TrainingLog(const std::string& path, bool go_on) : path_(path) {
  if (path.empty()) return;
  file_.open(path, go_on ? std::ios::app : std::ios::trunc);
  if (!file_) throw UserError(fmt::format("{}: the log cannot be opened for writing", path));
}

void TrainingLog::step(const Progress& p, std::int64_t rows) {
  if (path_.empty()) return;
  std::string line = fmt::format("{{\"step\": {}, \"epoch\": {}, \"rows\": {}", p.step, p.epoch + 1, rows);
  Metrics metrics = p.last;
  if (p.learning_rate) metrics["learning_rate"] = *p.learning_rate;
  write(std::move(line), metrics);
}

void TrainingLog::epoch(const Progress& p) {
  if (!path_.empty()) write(fmt::format("{{\"epoch\": {}, \"steps\": {}", p.epoch + 1, p.batch), p.metrics);
}

void TrainingLog::write(std::string line, const Metrics& metrics) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  line += fmt::format(", \"seconds\": {:.3f}", seconds);
  for (const auto& [name, value] : metrics) line += fmt::format(", {}: {}", json_text(name), json_real(value));
  file_ << line << "}\n" << std::flush;
  if (!file_) throw UserError(fmt::format("{}: the log could not be written; its disk may be full", path_));
}

}  // namespace belfry
