#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/executor/joins.h>
#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/predict_internal.h>
#include <belfry/frontends/cli/train_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/json/values.h>
#include <belfry/frontends/session/fetch_names.h>
#include <belfry/frontends/train/run_folder.h>
#include <belfry/graph/attributes.h>
#include <belfry/graph/rewrite.h>

namespace belfry {

namespace {

struct PredictArguments {
  std::string source, state, rescale, out;
  std::vector<std::string> files;
  std::int64_t batch = 0;
  int top = 0;
  bool json = false;
  std::vector<std::string> fetches;
  PlacementArguments placement;
};

/// A session with its weights, and what is known of what it reads and says.
struct Served {
  Session session;
  std::vector<std::string> classes = {}, features = {};
  std::optional<Pixels> pixels = {};
};

Served served_run(const PredictArguments& o, const std::shared_ptr<const Library>& library) {
  RunFolder run = read_run_folder(o.source, *library, o.state);
  Served out{make_session({std::make_shared<const Graph>(std::move(run.graph)), nullptr}, o.placement, library), std::move(run.classes), std::move(run.features), run.pixels};
  try {
    out.session.load_state(run.weights);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", run.state.string(), e.what()));
  }
  say(fmt::format("weights of {}\n", run.state.string()));
  return out;
}

Served served(const PredictArguments& o, const std::shared_ptr<const Library>& library) {
  const std::optional<std::string> text = source_text(o.source);
  if (text && is_run_folder(o.source)) return served_run(o, library);
  Source source = load_source(o.source, text, *library);
  refuse_broken(source, o.source, *library);
  Served out{make_session(source, o.placement, library)};
  load_states(out.session, source, o.state);
  std::vector<std::string> classes;
  if (const std::string& weights = o.state.empty() ? source.state : o.state; !weights.empty()) take_names(classes, out.features, weights);
  say_initial(out.session, source, o.state);
  return out;
}

/// What the fetches are computed from. UserError for a name that is none of the graph's values.
std::vector<std::string> inputs_of(const Graph& g, const std::vector<std::string>& fetches) {
  std::vector<ValueId> wanted;
  std::vector<std::string> out;
  for (const std::string& f : fetches) wanted.push_back(value_to_fetch(g, f));
  const std::vector<bool> read = ancestors(g, wanted);
  for (NodeId id : g.inputs())
    if (read[static_cast<std::size_t>(id)]) out.push_back(g.node(id).name);
  return out;
}

/// Parts below one another along axis 0.
HostTensor stacked(const std::vector<HostTensor>& parts) {
  const int count = static_cast<int>(parts.size());
  JoinRequest request{.how = "concat_rows", .axis = 0, .towers = count, .present = count, .parts = {}};
  std::vector<const std::byte*> data;
  Extents shape = parts[0].shape();
  shape[0] = 0;
  for (int k = 0; k < count; ++k) {
    const HostTensor& p = parts[static_cast<std::size_t>(k)];
    request.parts.push_back({k, k + 1, p.type()});
    data.push_back(p.raw());
    shape[0] += p.shape()[0];
  }
  HostTensor out(parts[0].dtype(), shape);
  Join(std::move(request), out.type())(data, out.raw());
  return out;
}

/// The greatest values of each row with their places, greatest first.
std::vector<std::vector<std::pair<std::size_t, double>>> best_of(const HostTensor& t, std::size_t top) {
  const auto columns = static_cast<std::size_t>(t.shape()[1]);
  std::vector<std::vector<std::pair<std::size_t, double>>> out(static_cast<std::size_t>(t.shape()[0]));
  visit_stored(t.dtype(), [&]<class T>() {
    const std::span<const T> data = t.data<T>();
    for (std::size_t row = 0; row < out.size(); ++row) {
      for (std::size_t k = 0; k < columns; ++k) out[row].emplace_back(k, static_cast<double>(data[row * columns + k]));
      std::stable_sort(out[row].begin(), out[row].end(), [](const auto& a, const auto& b) { return a.second > b.second || (std::isnan(b.second) && !std::isnan(a.second)); });
      out[row].resize(std::min(top, columns));
    }
  });
  return out;
}

/// Writes what came out: scores of classes, else all values.
class Answers {
 public:
  Answers(const PredictArguments& o, const std::vector<std::string>& classes, const PredictRows& rows) : o_(o), classes_(classes), rows_(rows) {}
  std::string text(const std::string& name, const HostTensor& t) const {
    const std::size_t top = top_of(t);
    if (!top) return fmt::format("{} = {}\n", name, to_string(t));
    std::string out;
    std::int64_t row = 0;
    for (const auto& best : best_of(t, top)) {
      out += fmt::format("{} {}:", name, shown(rows_.name(row++)));
      for (std::size_t k = 0; k < best.size(); ++k)
        out += fmt::format("{} {} {}", k ? "," : "", class_name(t, best[k].first).empty() ? fmt::format("class {}", best[k].first) : listed(class_name(t, best[k].first)),
                           std::isnan(best[k].second) ? "nan" : fmt::format("{:.6g}", best[k].second));
      out += "\n";
    }
    return out;
  }
  std::string json(const std::map<std::string, HostTensor>& all) const {
    std::vector<std::string> from, outputs;
    for (std::int64_t row = 0; rows_.photos() && row < rows_.count(); ++row) from.push_back(json_text(printable(rows_.name(row))));
    for (const auto& [name, t] : all) outputs.push_back(fmt::format("{}: {}", json_text(name), json_of(t)));
    return fmt::format("{{\"rows\": {}, {}\"outputs\": {{\n{}}}}}\n", rows_.count(), from.empty() ? "" : fmt::format("\"files\": [{}], ", fmt::join(from, ", ")), fmt::join(outputs, ",\n"));
  }

 private:
  /// An output of the graph may have more columns than there are classes; what is fetched besides is of classes only where they are as many.
  bool named(const HostTensor& t) const {
    const std::size_t columns = t.shape().size() == 2 ? static_cast<std::size_t>(t.shape()[1]) : 0;
    return !classes_.empty() && (columns == classes_.size() || (columns > classes_.size() && o_.fetches.empty()));
  }
  std::string class_name(const HostTensor& t, std::size_t k) const { return named(t) && k < classes_.size() ? classes_[k] : ""; }
  /// One row for each picture: of classes that have numbers alone.
  bool scores_pictures(const HostTensor& t) const { return rows_.photos() && !o_.json && o_.fetches.empty() && t.shape()[0] == rows_.count() && t.shape()[1] > 1; }
  /// 0: no scores of classes, or nobody asked for them.
  std::size_t top_of(const HostTensor& t) const { return t.shape().size() != 2 ? 0 : o_.top ? static_cast<std::size_t>(o_.top) : named(t) || scores_pictures(t) ? 3 : 0; }
  std::string json_of(const HostTensor& t) const {
    std::vector<std::string> lines;
    if (const std::size_t top = top_of(t)) {
      for (const auto& best : best_of(t, top)) {
        std::vector<std::string> entries;
        for (const auto& [k, score] : best) entries.push_back(fmt::format("{{\"class\": {}, {}\"score\": {}}}", k, class_name(t, k).empty() ? "" : fmt::format("\"name\": {}, ", json_text(class_name(t, k))), json_real(score)));
        lines.push_back(fmt::format("[{}]", fmt::join(entries, ", ")));
      }
      return fmt::format("[{}]", fmt::join(lines, ",\n"));
    }
    return belfry::json_of(t);
  }

  const PredictArguments& o_;
  const std::vector<std::string>& classes_;
  const PredictRows& rows_;
};

/// Where the values would lie in the place of what is read.
void refuse_lost(const PredictArguments& o) {
  refuse_unwritable({o.out});
  if (o.out.empty()) return;
  if (is_run_folder(o.source) && is_part_of_run(o.source, o.out)) throw UserError(fmt::format("--out {}: is a name of what belongs to the run in {}, which would be lost; name another file", o.out, o.source));
  std::vector<std::string> read = o.files;
  read.insert(read.end(), {o.source, o.state});
  refuse_over("--out", o.out, read);
}

/// Says in which row a value that is no number stands first, and in how many.
void say_nan(const std::string& name, const HostTensor& t, const PredictRows& fed) {
  const bool by_row = !t.shape().empty() && fed.count() > 0 && t.shape()[0] == fed.count();
  std::int64_t first = -1, count = 0;
  visit_stored(t.dtype(), [&]<class T>() {
    const std::span<const T> all = t.data<T>();
    const std::size_t rows = by_row ? static_cast<std::size_t>(fed.count()) : 1, width = all.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<const T> values = all.subspan(row * width, width);
      if (std::none_of(values.begin(), values.end(), [](const T& v) { return std::isnan(static_cast<double>(v)); })) continue;
      if (first < 0) first = static_cast<std::int64_t>(row);
      ++count;
    }
  });
  if (first < 0) return;
  if (!by_row) return say(fmt::format("'{}' has values that are no numbers (nan)\n", name));
  say(fmt::format("{}: '{}' is no number (nan){}\n", fed.name(first), name, count > 1 ? fmt::format(", and so in {} rows in all", count) : ""));
}

void predict(const PredictArguments& o, const std::shared_ptr<const Library>& library) {
  constexpr std::int64_t kPhotos = 32;  // at a time, that a folder of them need not lie in memory
  refuse_lost(o);
  Served net = served(o, library);
  Session& session = net.session;
  const std::vector<std::string> fetched = o.fetches.empty() ? session.default_fetches(Mode::infer) : o.fetches;
  refuse_ending(o.out, std::set(fetched.begin(), fetched.end()).size());
  if (!o.rescale.empty()) net.pixels = Pixels{rescale_of(o.rescale), net.pixels && net.pixels->antialias, net.pixels ? net.pixels->resized : 0};
  const PredictRows fed(session.graph(), inputs_of(session.graph(), fetched), o.files, net.pixels, net.features);
  const std::int64_t rows = fed.count(), most = o.batch ? o.batch : fed.photos() ? kPhotos : rows, batch = std::max<std::int64_t>(std::min(most, rows), 1);
  std::map<std::string, std::vector<HostTensor>> parts;
  for (std::int64_t first = 0; first == 0 || first < rows; first += batch) {
    const std::map<std::string, HostTensor> feeds = fed.feeds(first, std::min(batch, rows - first));
    const Results results = session.predict(feeds, o.fetches);
    for (const auto& [name, value] : results.all()) parts[name].push_back(value);
  }
  std::map<std::string, HostTensor> all;
  for (auto& [name, values] : parts) {
    const auto value = session.graph().find(name);  // none: a metric
    if (values.size() > 1 && (!value || !rows_first(session.graph(), session.graph().type(*value))))
      throw WrongUse(fmt::format("'{}' has no row for each row that is fed: predict all rows at once, without --batch, or --fetch what has", name));
    all.insert_or_assign(name, values.size() > 1 ? stacked(values) : std::move(values[0]));
  }
  const Answers answers(o, net.classes, fed);
  for (const auto& [name, value] : all) say_nan(name, value, fed);
  if (o.json) std::cout << answers.json(all);
  else
    for (const auto& [name, value] : all) std::cout << answers.text(name, value);
  if (!o.out.empty()) save_tensors(o.out, all);
}

}  // namespace

void add_predict_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand("predict", "Outputs of the graph for inference: no labels, no dropout, running statistics");
  verb->footer("Example: belfry predict run --feed images.npz --top 3\nExample: belfry predict mnist_cnn --feed images.npz --state run/state.safetensors --top 3");
  verb->add_option("source", o->source, "what belfry train --out wrote: graph, weights, names of classes and scaling of pixels; or a net, a graph file, a plan file")->required()->check(offers_nets());
  verb->add_option("--feed", o->files, "pictures (JPEG, PNG, folders of them), or a tensor per input that the outputs need: safetensors, npz or npy; "
                   "an array alone may have any name; or a table, as train --data has it: csv")->required()->check(is_data());
  verb->add_option("--state", o->state, "variables by name, in place of the run's")->check(is_file());
  verb->add_option("--rescale", o->rescale, "of pictures, and of bytes that an input of pictures is fed: SCALE[,OFFSET] as in 1/255, or standardise; by default the run's, else photos 1/127.5,-1")->check(offers({"1/255", "1/127.5,-1", "standardise"}));
  verb->add_option("--batch", o->batch, "rows at a time; by default all that are fed, of pictures 32")->check(count());
  verb->add_option("--fetch", o->fetches, "values to fetch; by default the outputs")->delimiter(',')->type_name("NAMES");
  verb->add_option("--top", o->top, "of outputs with a score per class: the K best of each row; by default 3 where the run knows the classes' names")->type_name("K")->check(whole(1, 1000));
  verb->add_flag("--json", o->json, "for machines");
  verb->add_option("--out", o->out, "the values, as *.safetensors, *.npz or, of one value, *.npy");
  o->placement.add_to(*verb);
  verb->callback([o, library] {
    if (o->placement.recompute) throw WrongUse("--recompute is of backward passes, and predict has none: leave it out");
    predict(*o, library());
  });
}

}  // namespace belfry
