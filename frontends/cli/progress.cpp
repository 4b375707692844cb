#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/progress_internal.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/frontends/files/utf8.h>

namespace belfry {
namespace {

constexpr const char* kClear = "\r\x1b[K";

// All words for a person go through here, each in one write: lines of several threads never mix.
std::mutex& writer() {
  static std::mutex mutex;
  return mutex;
}
bool& quiet() {
  static bool is = false;
  return is;
}
std::string& line_below() {
  static std::string line;
  return line;
}

void write_words(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// No longer than the terminal is wide: a line that wraps cannot be written over.
std::string fitting(const std::string& line) {
  winsize size{};
  const std::size_t width = ::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  return line.substr(0, width);
}

}  // namespace

void be_quiet(bool is) {
  std::lock_guard lock(writer());
  quiet() = is;
}

void say(const std::string& words) {
  std::lock_guard lock(writer());
  if (quiet()) return;
  const std::string text = shown(words, "\n\t");
  const std::string& below = line_below();
  write_words(below.empty() ? text : kClear + text + (text.ends_with('\n') ? "" : "\n") + below);
}

void show_line(const std::string& line) {
  std::lock_guard lock(writer());
  if (quiet() || (line.empty() && line_below().empty())) return;
  line_below() = fitting(line);
  write_words(kClear + line_below());
}

bool writes_over() {
  const char *plain = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return ::isatty(2) && !(plain && *plain) && !(term && std::string_view(term) == "dumb");
}

std::string metric_text(const std::string& name, double value, int digits) {
  if (std::isnan(value)) return shown(name) + " nan";  // no sign
  const double size = std::abs(value);
  const bool usual = size == 0 || !std::isfinite(size) || (size >= 1e-3 && size < 1e6);
  return usual ? fmt::format("{} {:.{}f}", shown(name), value, digits) : fmt::format("{} {:.{}g}", shown(name), value, digits);
}

std::string metrics_text(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += "  " + metric_text(name, value, 4);
  return out;
}

ProgressLine::ProgressLine(std::string unit, std::optional<double> one_device)
    : unit_(std::move(unit)), one_device_(one_device), shown_(writes_over() ? Clock::time_point{} : Clock::now()) {}

ProgressLine::~ProgressLine() { show_line(""); }

std::string ProgressLine::rate(const Progress& p, bool whole) const {
  std::string out = fmt::format("{:.0f} {}/s", p.rows_per_second, unit_);
  if (one_device_ && *one_device_ > 0 && p.rows_per_second > 0) out += fmt::format(", x{:.2f}{}", p.rows_per_second / *one_device_, whole ? " of one device" : "");
  return out;
}

void ProgressLine::batch(const Progress& p) {
  const bool over = writes_over();
  const auto pause = over ? std::chrono::milliseconds(100) : std::chrono::milliseconds(30'000);
  if (Clock::now() - shown_ < pause) return;
  shown_ = Clock::now();
  const std::string line = fmt::format("Epoch {:2}/{:2}  {:4}/{:4}  {}{}", p.epoch + 1, p.epochs, p.batch, p.batches, rate(p, !over), metrics_text(p.metrics));
  if (over) show_line(line);
  else say(line + "\n");
}

void ProgressLine::epoch(const Progress& p) {
  show_line("");
  shown_ = Clock::now();
  say(fmt::format("Epoch {:2}/{:2}  {:.1f} s  {}{}\n", p.epoch + 1, p.epochs, p.seconds, rate(p), metrics_text(p.metrics)));
}

std::optional<double> one_device_rate(Session& session, const DataSet& data, std::int64_t batch, const std::vector<std::string>& fetches) {
  if (session.strategy().loops) return {};
  const PlacedGraph& plan = session.plan(batch, Mode::step, fetches);
  std::set<int> devices;
  for (const PlanStream& s : plan.streams)
    if (s.name.starts_with("tower")) devices.insert(s.device);
  if (devices.size() < 2) return {};
  const ClusterDevice& first = plan.cluster.devices[static_cast<std::size_t>(*devices.begin())];
  std::int64_t bytes = 0;
  for (const DeviceBytes& d : device_bytes(plan)) bytes += d.total();
  if (2 * bytes > first.memory) return {};
  try {
    SessionOptions options = session.options();
    options.rules = {};
    Session alone(session.graph(), Single{first.id, 1, plan.placement.combine, plan.threads}, options);
    Batches batches(data, std::min(batch, data.rows()));
    const NamedTensors rows = batches.next();
    auto begin = std::chrono::steady_clock::now();
    constexpr int kWarm = 2, kTimed = 3;
    for (int k = 0; k < kWarm + kTimed; ++k) {
      if (k == kWarm) begin = std::chrono::steady_clock::now();
      alone.step(rows, fetches);
    }
    return static_cast<double>(kTimed * std::min(batch, data.rows())) / std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  } catch (const std::exception&) {
    return {};  // a figure less, for which training does not fail
  }
}

}  // namespace belfry
