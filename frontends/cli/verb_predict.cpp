#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>

#include <fmt/format.h>

#include <belfry/executor/joins.h>
#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/graph/attributes.h>

namespace belfry {

namespace {

struct PredictArguments {
  std::string source, feed, state, out;
  std::int64_t batch = 0;
  int top = 0;
  std::vector<std::string> fetches;
  PlacementArguments placement;
};

bool has_rows(const Graph& g, const TensorType& t) { return !t.shape.empty() && t.shape[0].symbol == g.row_symbol; }

/// Feeds with rows first, and those that are the same for all of them.
struct Feeds {
  DataSet rows;
  std::map<std::string, HostTensor> whole;
};

Feeds split_feeds(const Graph& g, std::map<std::string, HostTensor> feeds) {
  Feeds out;
  for (auto& [name, tensor] : feeds) {
    const NodeId id = g.find_node(name);
    (id >= 0 && has_rows(g, g.node(id).types[0]) ? out.rows.columns : out.whole).insert_or_assign(name, std::move(tensor));
  }
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

/// The greatest values of each row, greatest first: of scores of classes.
std::string top_text(const std::string& name, const HostTensor& t, int top) {
  const auto classes = static_cast<std::size_t>(t.shape()[1]);
  const std::size_t shown = std::min(static_cast<std::size_t>(top), classes);
  std::string out;
  visit_dtype(t.dtype(), [&]<class T>() {
    const std::span<const T> data = t.data<T>();
    std::vector<std::size_t> order(classes);
    for (std::size_t row = 0; row < static_cast<std::size_t>(t.shape()[0]); ++row) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      auto greater = [&](std::size_t a, std::size_t b) { return static_cast<double>(data[row * classes + a]) > static_cast<double>(data[row * classes + b]); };
      std::stable_sort(order.begin(), order.end(), greater);
      out += fmt::format("{} row {}:", name, row);
      for (std::size_t k = 0; k < shown; ++k) out += fmt::format("{} class {} {:.6g}", k ? "," : "", order[k], static_cast<double>(data[row * classes + order[k]]));
      out += "\n";
    }
  });
  return out;
}

void predict(const PredictArguments& o, const std::shared_ptr<const Library>& library) {
  refuse_unwritable({o.out});
  Source source = load_source(o.source, *library);
  refuse_broken(source, o.source);
  Session session = make_session(source, o.placement, library);
  load_states(session, source, o.state);
  say_initial(session, source, o.state);
  std::map<std::string, HostTensor> given = load_tensors(o.feed);
  say_unread(session.graph(), given, o.feed);
  const Feeds feeds = split_feeds(session.graph(), std::move(given));
  const std::int64_t rows = feeds.rows.rows(), batch = o.batch && rows ? std::min(o.batch, rows) : std::max<std::int64_t>(rows, 1);
  std::map<std::string, std::vector<HostTensor>> parts;
  for (std::int64_t first = 0; first == 0 || first < rows; first += batch) {
    std::map<std::string, HostTensor> fed = feeds.whole;
    fed.merge(feeds.rows.slice(first, std::min(batch, rows - first)).columns);
    const Results results = session.predict(fed, o.fetches);
    for (const auto& [name, value] : results.all()) parts[name].push_back(value);
  }
  std::map<std::string, HostTensor> all;
  for (auto& [name, values] : parts) {
    if (values.size() > 1 && !has_rows(session.graph(), session.graph().type(session.graph().at(name))))
      throw WrongUse(fmt::format("'{}' has no row for each row that is fed: predict all rows at once, without --batch, or --fetch what has", name));
    all.insert_or_assign(name, values.size() > 1 ? stacked(values) : std::move(values[0]));
  }
  for (const auto& [name, value] : all) {
    if (o.top && value.shape().size() == 2) std::cout << top_text(name, value, o.top);
    else std::cout << name << " = " << to_string(AttributeValue(value)) << "\n";
  }
  if (!o.out.empty()) save_tensors(o.out, all);
}

}  // namespace

void add_predict_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand("predict", "Outputs of the graph for inference: no labels, no dropout, running statistics");
  verb->footer("Example: belfry predict mnist_cnn --feed images.npz --state run/state.safetensors --top 3");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  verb->add_option("--feed", o->feed, "a tensor per input that the outputs need: safetensors or npz, or npy for one that has the file's name")->required()->check(CLI::ExistingFile);
  verb->add_option("--state", o->state, "variables by name")->check(CLI::ExistingFile);
  verb->add_option("--batch", o->batch, "rows at a time; by default all that are fed")->check(count());
  verb->add_option("--fetch", o->fetches, "values to fetch; by default the outputs")->delimiter(',');
  verb->add_option("--top", o->top, "of outputs with a score per class: the K best of each row")->type_name("K")->check(whole(1, 1000));
  verb->add_option("--out", o->out, "the values, as safetensors");
  o->placement.add_to(*verb);
  verb->callback([o, library] { predict(*o, library()); });
}

}  // namespace belfry
