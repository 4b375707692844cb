#include <belfry/frontends/cli/optimizer_options_internal.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/cli/device_options_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/ops/passes/optimizer_kinds.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

template <class T>
T number_of(const std::string& option, const std::string& text, const char* what) {
  T out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError(fmt::format("the optimizer's option '{}' is {}, not '{}'", option, what, text));
  return out;
}

AttributeValue value_of(const AttributeDef& def, const std::string& text) {
  if (def.kind == AttributeKind::truth) {
    if (text != "true" && text != "false") throw UserError(fmt::format("the optimizer's option '{}' is true or false, not '{}'", def.name, text));
    return text == "true";
  }
  if (def.kind == AttributeKind::integer) return number_of<std::int64_t>(def.name, text, "a whole number");
  if (def.kind == AttributeKind::real) return number_of<double>(def.name, text, "a number");
  return text;
}

/// "adam:learning_rate=0.001,amsgrad=true": kind and options. Schedules are of files.
TrainSpec optimizer_of(const std::string& text) {
  TrainSpec out;
  out.optimizer = text.substr(0, text.find(':'));
  const std::vector<AttributeDef>& known = optimizer_options(out.optimizer);
  for (const auto& [name, value] : named_values(text, "an optimizer's options are NAME=VALUE")) {
    const auto def = std::find_if(known.begin(), known.end(), [&name = name](const AttributeDef& d) { return d.name == name; });
    out.options.set(name, def == known.end() ? AttributeValue(value) : value_of(*def, value));
  }
  training_options(out);  // says which options there are
  return out;
}

}  // namespace

void add_optimizer_options(CLI::App& verb, PlacementArguments& a) {
  verb.add_option("--optimizer", a.optimizer, fmt::format("in place of the graph's, its schedule too: adam:learning_rate=0.001,beta1=0.8; {}", either(optimizer_names())))
      ->type_name("KIND[:NAME=VALUE,…]")
      ->check(readable([](const std::string& text) { optimizer_of(text); }))
      ->check(offers(optimizer_names()));
  verb.add_option("--learning-rate,--lr", a.learning_rate, "in place of the optimizer's, its schedule too")->type_name("RATE")->check(fraction(0, 1e9));
}

void refuse_idle_optimizer(const PlacementArguments& a) {
  if (!a.optimizer.empty() || a.learning_rate) throw WrongUse(fmt::format("{} is of training, and --inference has none: leave one of them out", a.optimizer.empty() ? "--learning-rate" : "--optimizer"));
}

Graph with_optimizer(Graph graph, const PlacementArguments& a) {
  if (a.optimizer.empty() && !a.learning_rate) return graph;
  const char* option = a.optimizer.empty() ? "--learning-rate" : "--optimizer";
  if (!graph.train)
    throw UserError(fmt::format("{}: the graph '{}' says no optimizer that another could take the place of: {}", option, graph.name,
                                graph.updates.empty() ? "give its file a \"train\", with its loss and an optimizer" : "its updates are written out; take the graph in whose file \"train\" stands"));
  TrainSpec& spec = *graph.train;
  if (!a.optimizer.empty()) {
    TrainSpec given = optimizer_of(a.optimizer);
    given.losses = std::move(spec.losses);
    spec = std::move(given);
  }
  if (a.learning_rate) {
    if (spec.options.find("learning_rate") && !a.optimizer.empty()) throw WrongUse("--learning-rate and the learning_rate of --optimizer say one thing twice; leave one out");
    spec.options.set("learning_rate", *a.learning_rate);
    spec.learning_rate = {};
    spec.schedule = {};
  }
  made_of_options([&] { return training_options(spec); });
  return graph;
}

}  // namespace belfry
