#include <belfry/frontends/train/fit_checks_internal.h>

#include <cmath>

#include <fmt/format.h>

#include <belfry/frontends/train/log_internal.h>

namespace belfry {

bool logs(const FitOptions& options) { return !options.log.empty() || !options.tensorboard.empty(); }

void check_finite(const Results& results, const std::vector<std::string>& losses, const Progress& p) {
  for (const std::string& name : losses)
    if (double x = as_double(results[name]); !std::isfinite(x))
      throw UserError(fmt::format("the loss '{}' is {} after batch {} of epoch {}; lower the learning rate, or look at the input", name, std::isnan(x) ? "nan" : fmt::format("{}", x), p.batch, p.epoch + 1));
}

const FitOptions& checked(const FitOptions& options) {
  auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least) throw UserError(fmt::format("FitOptions::{} is {}; {} is the least", name, value, least));
  };
  at_least("epochs", options.epochs, 0);
  at_least("steps", options.steps, 0);
  at_least("checkpoint_every", options.checkpoint_every, 0);
  at_least("keep", options.keep, 1);
  return options;
}

void check_names(const Graph& g, const std::vector<std::string>& reported, const FitOptions& options) {
  if (!logs(options)) return;
  const std::string name = name_taken(reported, options.tensorboard.empty() ? LogLines::all : LogLines::charts);
  if (name.empty()) return;
  const std::string what = fmt::format("the {} of the graph '{}'", metric_or_loss(g, name), g.name);
  if (name_taken(reported, LogLines::all) != name)
    throw UserError(fmt::format("{} is drawn by TensorBoard as '{}', which is the name of another chart; give it another name, or train without TensorBoard's files", what, scalar_tag(name)));
  const std::string where = options.log.empty() ? fmt::format("charts in {}", options.tensorboard) : fmt::format("lines of the log {}", options.log);
  throw UserError(fmt::format("{} has the name of what {} say of themselves; give it another name, or train without a log", what, where));
}

}  // namespace belfry
