#include <belfry/frontends/cli/train_internal.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/cli/predict_internal.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/state/checkpoint.h>

namespace belfry {

// "none", or the names as JSON has them in an array.
std::string names_told(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(json_text(name));
  return quoted.empty() ? "none" : fmt::format("{}", fmt::join(quoted, ", "));
}

void take_names(std::vector<std::string>& classes, std::vector<std::string>& features, const std::filesystem::path& weights) {
  const std::filesystem::path folder = weights.has_parent_path() ? weights.parent_path() : ".";
  RunFacts known;
  if (is_run_folder(folder) && is_part_of_run(folder, weights)) known = read_run_facts(folder);
  const TextMap said = weights.extension() == ".safetensors" ? checkpoint_notes(weights) : TextMap();
  auto take = [&](std::vector<std::string>& to, std::vector<std::string>& of_run, const char* key) {
    if (to.empty()) to = std::move(of_run);
    const auto told = said.find(key);
    if (!to.empty() || told == said.end() || !told->second.starts_with('"')) return;
    const JsonDocument names(fmt::format("[{}]", told->second), weights.string());
    for (const JsonValue& name : names.array(names.root())) to.push_back(names.text(name));
  };
  take(classes, known.classes, kClassesTold);
  take(features, known.features, kFeaturesTold);
}

Rescale rescale_of(const std::string& text) {
  if (text == "standardise") return {.standardised = true};
  double divisor = 1, offset = 0;
  const char* begin = text.c_str();
  char* end = nullptr;
  const double scale = std::strtod(begin, &end);
  bool read = end != begin;
  for (auto [mark, number] : {std::pair{'/', &divisor}, {',', &offset}}) {
    if (*end != mark) continue;
    begin = end + 1;
    *number = std::strtod(begin, &end);
    read = read && end != begin;
  }
  read = read && *end == '\0';
  if (!read || !std::isfinite(scale / divisor) || !std::isfinite(offset)) throw WrongUse(fmt::format("--rescale '{}': a scale and perhaps an offset are expected, as in 1/127.5,-1, or standardise", text));
  return {scale / divisor, offset};
}

std::string rescale_text(const Rescale& how) { return how.standardised ? "standardise" : how.offset == 0 && how.scale == 1.0 / 255 ? "1/255" : fmt::format("{},{}", how.scale, how.offset); }

bool goes_in_as_is(const Rescale& how) { return !how.standardised && how.scale == 1 && how.offset == 0; }

namespace {

Shard shard_of(const std::string& text) {
  Shard out;
  int used = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "/%" SCNd64 "%n", &out.index, &out.count, &used) != 2 || text.c_str()[used] != '\0' || out.index < 0 || out.index >= out.count)
    throw WrongUse(fmt::format("--shard '{}': I/N is expected, with I from 0 to N - 1", text));
  return out;
}

}  // namespace

bool holds_bytes(const HostTensor& pictures) {
  constexpr std::size_t kLooked = 1 << 20;
  if (pictures.dtype() != f32 || pictures.shape().size() != 4) return false;
  const std::span<const float> some = pictures.data<float>().first(std::min(kLooked, pictures.data<float>().size()));
  const bool whole = std::all_of(some.begin(), some.end(), [](float x) { return x >= 0 && x <= 255 && x == std::floor(x); });
  return whole && std::any_of(some.begin(), some.end(), [](float x) { return x > 15; });
}

bool holds_bytes(const DataSet& data) {
  const auto image = data.columns.find("image");
  return image != data.columns.end() && holds_bytes(image->second);
}

DataWanted data_wanted(const Session& session, const TrainArguments& o) {
  DataWanted wanted{.antialias = o.antialias};
  const Graph& g = session.graph();
  for (NodeId id : g.inputs()) {
    const std::string& name = g.node(id).name;
    const TensorType& type = g.node(id).types[0];
    if (name == "image" && type.shape.size() == 4) wanted.height = type.shape[1].factor, wanted.width = type.shape[2].factor, wanted.channels = type.shape[3].factor;
    if (name == "tokens" && type.shape.size() == 2) wanted.length = type.shape[1].factor;
    if (type.shape.empty() || type.shape[0].symbol != g.row_symbol) continue;
    LocalType& row = wanted.inputs[name] = {type.dtype, {}};
    for (std::size_t axis = 1; axis < type.shape.size(); ++axis) row.shape.push_back(type.shape[axis].factor);
  }
  if (!o.rescale.empty()) wanted.rescale = rescale_of(o.rescale);
  else if (o.evaluates) wanted.bytes = o.trained_on;
  if (!o.distort.empty()) wanted.distortions = made_of_options([&] { return parse_distortions(o.distort, o.placement.seed); });
  if (!o.shard.empty()) wanted.shard = shard_of(o.shard);
  wanted.hold_out = o.hold_out;
  wanted.all_to_test = o.evaluates;
  wanted.classes = o.classes;
  wanted.features = o.features;
  return wanted;
}

namespace {

/// How many classes a loss tells apart by the numbers of this input: the last axis of the logits beside it.
std::optional<std::int64_t> classes_told_apart(const Graph& g, const std::string& input) {
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    auto of = [&](const char* name) {
      for (std::size_t k = 0; k < n.inputs.size() && k < n.op->inputs.size(); ++k)
        if (n.op->inputs[k].name == name) return std::optional(n.inputs[k]);
      return std::optional<ValueId>();
    };
    const auto logits = of("logits"), label = of("label");
    if (!logits || !label || g.node(label->node).name != input || g.type(*label).shape.size() >= g.type(*logits).shape.size()) continue;
    if (const Dim& last = g.type(*logits).shape.back(); !last.symbolic()) return last.factor;
  }
  return {};
}

std::string way_out(std::int64_t classes) { return fmt::format("take one with as many outputs (of most nets classes=N says that, as in mobilenet_v2:classes={})", classes); }

void refuse_classes(const Graph& g, const TrainArguments& o, const std::vector<std::string>& classes) {
  const auto known = classes_told_apart(g, "label");
  const auto there = static_cast<std::int64_t>(classes.size());
  if (known && there > *known) throw UserError(fmt::format("{}: there are {} classes, and the net tells {} apart: {}", o.data, there, *known, way_out(there)));
}

/// Labels that no class of the net has would end the training at the first batch that has one.
void refuse_labels(const Graph& g, const DataSet& data, const TrainArguments& o) {
  for (const auto& [name, column] : data.columns) {
    const auto known = column.dtype() == i32 ? classes_told_apart(g, name) : std::nullopt;
    if (!known || column.elements() == 0) continue;
    const auto [least, most] = std::minmax_element(column.data<std::int32_t>().begin(), column.data<std::int32_t>().end());
    if (*least >= 0 && *most < *known) continue;
    const std::int64_t count = std::int64_t{*most} - *least + 1;
    std::string mend = *least < 0 || count <= *known ? "number the classes from 0 on" : "";
    if (*least >= 0) mend += (mend.empty() ? "" : ", or ") + way_out(std::int64_t{*most} + 1);
    else if (count > *known) mend += ", and " + way_out(count);
    throw UserError(fmt::format("{}: the column '{}' has numbers from {} to {}, and the net tells {} classes apart, from 0 on: {}", o.data, name, *least, *most, *known, mend));
  }
}

}  // namespace

bool shuffles(const TrainArguments& o, const DataSet& train) {
  if (o.shuffle) return true;
  if (!o.no_shuffle && !train.types().contains("tokens") && data_kind(o.data) == DataKind::photos) {
    say("photos come in another order in each epoch, keyed by --seed; --no-shuffle takes them class by class\n");
    return true;
  }
  const auto label = train.columns.find("label");
  if (label == train.columns.end() || label->second.dtype() != i32 || label->second.shape().size() != 1) return false;
  const std::span<const std::int32_t> labels = label->second.data<std::int32_t>();
  if (!labels.empty() && labels.front() != labels.back() && std::is_sorted(labels.begin(), labels.end())) say("the rows come sorted by their labels, so that most batches are of one class; nets learn better with --shuffle\n");
  return false;
}

namespace {

/// Where pixels are otherwise than nets, or this one, learn from them.
void say_scaling(const TrainArguments& o, const DataWanted& wanted, const Splits& data) {
  const auto here = pixels_of(o.data, wanted);
  if (o.rescale.empty() && !here && (holds_bytes(data.train) || holds_bytes(data.test))) {
    if (!o.trained_on) say("the pixels go in as they are, 0 to 255; most nets learn better from 0 to 1: --rescale 1/255\n");
    else if (!goes_in_as_is(*o.trained_on))
      say(fmt::format("the pixels go in as they are, 0 to 255, where the run was trained on {}: --rescale {} does that here\n", to_string(*o.trained_on), rescale_text(*o.trained_on)));
  }
  if (o.trained_on && here && o.rescale.empty() && to_string(here->rescale) != to_string(*o.trained_on))
    say(fmt::format("the pixels go in as {}, as those of {} always do, where the run was trained on {}\n", to_string(here->rescale), name_of(data_kind(o.data)), to_string(*o.trained_on)));
}

}  // namespace

void say_passed_over(const std::string& data) {
  const std::vector<std::filesystem::path> others = files_passed_over(data);
  if (others.empty()) return;
  const bool one = others.size() == 1;
  say(fmt::format("{} file{} in the class folders {} no .jpg, .jpeg or .png and passed over: {}{}\n", others.size(), one ? "" : "s", one ? "is" : "are", others[0].string(), one ? "" : ", …"));
}

Splits splits_for(const Session& session, const TrainArguments& o) {
  const DataWanted wanted = data_wanted(session, o);
  refuse_classes(session.graph(), o, photo_classes(o.data, wanted));  // before they are read, which takes a while
  Splits out = data_folder(o.data, wanted);
  refuse_classes(session.graph(), o, out.classes);
  if (!wanted.length && data_kind(o.data) == DataKind::photos) say_passed_over(o.data);
  for (const DataSet* part : {&out.train, &out.test}) {
    for (const auto& [name, type] : part->types())
      if (wanted.inputs.contains(name)) refuse_shape(session.graph(), name, type.shape, type, o.data);
    refuse_labels(session.graph(), *part, o);
  }
  if (o.hold_out > 0) say(fmt::format("{} rows of {} are held out to test on\n", out.test.rows(), out.train.rows() + out.test.rows()));
  else if (out.train.columns.empty() && out.train.made.empty()) say(fmt::format("{} comes in one part: all {} rows are evaluated\n", o.data, out.test.rows()));
  if (o.evaluates && o.classes.empty() && !out.classes.empty() && data_kind(o.data) == DataKind::tables)
    say(fmt::format("the labels are words, and no names of classes were kept with the net: {} is taken for 0 and {} for {}, as they are sorted\n", listed(out.classes.front()),
                    listed(out.classes.back()), out.classes.size() - 1));
  say_scaling(o, wanted, out);
  return out;
}

}  // namespace belfry
