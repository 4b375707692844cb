#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/files/numbers.h>
#include <belfry/frontends/train/early_stop_internal.h>
#include <belfry/frontends/train/means_internal.h>

namespace belfry {
namespace {

constexpr const char* kStop = "early stop";

}  // namespace

EarlyStop::EarlyStop(const Graph& graph, const FitOptions& options) : metric_(options.monitor), patience_(options.patience) {
  if (!patience_) return;
  if (patience_ < 0) throw UserError(fmt::format("a patience of {} epochs; 1 is the least", patience_));
  const std::vector<std::string> losses = loss_names(graph);
  std::vector<std::string> names = reported(graph);
  if (options.validation)
    for (std::size_t i = 0, n = names.size(); i < n; ++i) names.push_back("val_" + names[i]);
  const bool low_asked = metric_.starts_with("min:"), asked = low_asked || metric_.starts_with("max:");
  if (asked) metric_.erase(0, 4);
  if (metric_.empty() && !losses.empty()) metric_ = (options.validation ? "val_" : "") + losses[0];
  if (std::find(names.begin(), names.end(), metric_) == names.end()) throw UserError(fmt::format("no epoch has the metric '{}'; there are {}", metric_, fmt::join(names, ", ")));
  const std::string plain = metric_.starts_with("val_") ? metric_.substr(4) : metric_;
  const bool loss = std::find(losses.begin(), losses.end(), plain) != losses.end();
  const bool counts_hits = plain.find("accuracy") != std::string::npos || plain.find("top_") != std::string::npos;
  if (!asked && !loss && !counts_hits) throw UserError(fmt::format("is a high '{0}' better, or a low one? Write max:{0} or min:{0}", metric_));
  high_ = asked ? !low_asked : !loss;
}

bool EarlyStop::best(std::int64_t epoch, const Metrics& metrics) {
  if (!patience_) return false;
  const auto at = metrics.find(metric_);
  const bool better = at != metrics.end() && !std::isnan(at->second) && (!any() || (high_ ? at->second > best_ : at->second < best_));
  waited_ = better ? 0 : waited_ + 1;
  if (better) best_epoch_ = epoch, best_ = at->second;
  return better;
}

std::string EarlyStop::text() const {
  const std::string kept = any() ? fmt::format("the variables are those of epoch {}, with {:.6g}", best_epoch_ + 1, best_) : "no epoch had one that is a number, and the variables are the last";
  return over() ? fmt::format("{} was not better for {} epoch{}; {}", metric_, patience_, patience_ == 1 ? "" : "s", kept) : fmt::format("the best {}: {}", metric_, kept);
}

void EarlyStop::note(TextMap& notes) const {
  if (patience_ && any()) notes[kStop] = fmt::format("{} {} {} {}", waited_, best_epoch_, best_, metric_);
}

void EarlyStop::take(const TextMap& notes) {
  const auto at = notes.find(kStop);
  if (!patience_ || at == notes.end() || !at->second.ends_with(" " + metric_)) return;
  char* end = nullptr;
  waited_ = static_cast<int>(std::strtol(at->second.c_str(), &end, 10));
  best_epoch_ = std::strtoll(end, &end, 10);
  best_ = real_at(end);
}

}  // namespace belfry
