#include <belfry/frontends/train/means_internal.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/files/numbers.h>
#include <belfry/graph/float_environment.h>

namespace belfry {
namespace {

constexpr std::string_view kWeight = "/weight", kSum = "sum ", kRows = "rows";

}  // namespace

double Metrics::at(const std::string& name) const {
  if (const auto found = find(name); found != end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, mean] : *this) names.push_back(known);
  if (names.empty()) throw UserError(fmt::format("there is no '{}': nothing was evaluated", name));
  throw UserError(fmt::format("there is no '{}' among what was evaluated: {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

double as_double(const HostTensor& t) {
  return visit_stored(t.dtype(), [&]<class T>() { return static_cast<double>(t.data<T>()[0]); });
}

void RunningMeans::add(const Results& results, const std::vector<std::string>& names, std::int64_t rows) {
  for (const std::string& n : names) {
    const auto at = results.all().find(n + std::string(kWeight));
    const double weight = at == results.all().end() ? static_cast<double>(rows) : as_double(at->second);
    Sum& s = sums_[n];
    if (weight == 0) continue;  // nothing of it is in this batch
    s.sum += as_double(results[n]) * weight;
    s.weight += weight;
  }
  rows_ += rows;
}

Metrics RunningMeans::means() const {
  Metrics out;
  for (const auto& [name, s] : sums_) out[name] = s.weight == 0 ? 0 : s.sum / s.weight;
  return out;
}

void RunningMeans::note(TextMap& notes) const {
  for (const auto& [name, s] : sums_) notes[std::string(kSum) + name] = fmt::format("{} {}", s.sum, s.weight);
  notes[std::string(kRows)] = std::to_string(rows_);
}

void RunningMeans::take(const TextMap& notes) {
  for (const auto& [key, value] : notes) {
    if (key == kRows) rows_ = std::strtoll(value.c_str(), nullptr, 10);
    if (!key.starts_with(kSum)) continue;
    char* end = nullptr;
    Sum& s = sums_[key.substr(kSum.size())];
    s.sum = real_at(value.c_str(), &end);
    s.weight = real_at(end);
  }
}

namespace {

/// One number each, under a name that no other loss is shown by.
void check_metrics(const Graph& g) {
  const std::vector<ValueId>& losses = g.train ? g.train->losses : g.losses;
  const auto alias = g.aliases.find("loss");
  for (const auto& [name, v] : g.metrics) {
    if (name.empty()) throw UserError(fmt::format("a metric of the graph '{}', the value '{}', has no name: give it one", g.name, g.name_of(v)));
    if (!g.type(v).shape.empty())
      throw UserError(fmt::format("a metric is a scalar, but '{}' of the graph '{}' is {}; take its mean, or make it an output", name, g.name, to_string(g.type(v))));
    for (ValueId loss : losses) {
      const bool called_loss = losses.size() == 1 && name == "loss" && alias != g.aliases.end() && alias->second == loss;
      if (loss != v && (called_loss || g.name_of(loss) == name))
        throw UserError(fmt::format("the metric '{0}' of the graph '{1}' is '{2}', and would hide the loss '{3}', which is shown as '{0}'; give the metric another name", name, g.name, g.name_of(v), g.name_of(loss)));
    }
  }
}

}  // namespace

std::vector<std::string> reported(const Graph& g) {
  check_metrics(g);
  std::vector<std::string> out = loss_names(g), all = out;
  for (const auto& [name, v] : g.metrics)
    if (std::find(out.begin(), out.end(), name) == out.end()) all.push_back(name);
  auto weighs = [&](const std::string& name) { return name.ends_with(kWeight) && std::find(all.begin(), all.end(), name.substr(0, name.size() - kWeight.size())) != all.end(); };
  std::copy_if(all.begin() + static_cast<std::ptrdiff_t>(out.size()), all.end(), std::back_inserter(out), [&](const std::string& name) { return !weighs(name); });
  return out;
}

std::string metric_or_loss(const Graph& graph, const std::string& name) {
  const std::vector<std::string> losses = loss_names(graph);
  return fmt::format("{} '{}'", std::find(losses.begin(), losses.end(), name) != losses.end() ? "loss" : "metric", name);
}

std::vector<std::string> with_weights(const Graph& g, std::vector<std::string> names) {
  for (std::size_t i = 0, n = names.size(); i < n; ++i)
    if (auto at = g.metrics.find(names[i] + std::string(kWeight)); at != g.metrics.end()) names.push_back(at->first);
  return names;
}

void check_columns(const Graph& g, const DataSet& data) {
  for (NodeId id : g.inputs()) {
    const std::string& name = g.node(id).name;
    if (data.columns.contains(name) || data.made.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [column, t] : data.types()) names.push_back(column);
    throw UserError(fmt::format("the data have no column for the input '{}'; their columns are {}", name, fmt::join(names, ", ")));
  }
}

Metrics evaluate(Session& session, const DataSet& data, std::int64_t batch) { return evaluate(session, std::vector<const DataSet*>{&data}, batch); }

Metrics evaluate(Session& session, const std::vector<const DataSet*>& parts, std::int64_t batch) {
  const DefaultFloats floats;
  std::vector<std::string> names = reported(session.graph()), fetches = with_weights(session.graph(), names);
  if (names.empty()) throw UserError(fmt::format("the graph '{}' has neither loss nor metric to evaluate", session.graph().name));
  RunningMeans means;
  for (const DataSet* data : parts) {
    check_columns(session.graph(), *data);
    Batches batches(*data, batch);
    std::map<std::string, HostTensor> columns, later;
    Batch ahead;
    batches.next_into(columns);
    for (bool more = true; more; std::swap(columns, later)) {
      const Batch given = ahead.number() ? std::exchange(ahead, {}) : Batch(columns);
      const std::int64_t rows = columns.begin()->second.shape()[0];
      more = batches.position().epoch == 0;
      auto next = [&] {
        batches.next_into(later);
        return ahead = Batch(later);
      };
      means.add(session.predict(given, fetches, more ? next : std::function<Batch()>()), names, rows);
      if (more && !ahead.number()) next();
    }
  }
  return means.means();
}

}  // namespace belfry
