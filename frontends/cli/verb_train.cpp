#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/progress_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/train/fit.h>

namespace belfry {

namespace {

struct TrainArguments {
  std::string source, data, out, checkpoints, resume, state, log, split = "test";
  std::string monitor, tensorboard, distort, rescale, shard;
  std::int64_t batch = 0, steps = 0, checkpoint_every = 0;
  int epochs = 5, keep = 3, patience = 0;
  bool shuffle = false, full_batches = false, drop_last = false, averages = false, antialias = false, quiet = false, json = false;
  PlacementArguments placement;
};

void say_memory(Session& session) {
  const Program& program = session.last_program();
  for (std::size_t s = 0; s < program.bound().spaces.size(); ++s)
    say(fmt::format("memory of {}: planned {} bytes, allocated {} bytes\n", program.bound().spaces[s], program.bound().arena_bytes[s], program.allocated(static_cast<int>(s))));
}

/// "1/127.5,-1": scale and offset of pixels; or "standardise".
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

Shard shard_of(const std::string& text) {
  Shard out;
  int used = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "/%" SCNd64 "%n", &out.index, &out.count, &used) != 2 || text.c_str()[used] != '\0' || out.index < 0 || out.index >= out.count)
    throw WrongUse(fmt::format("--shard '{}': I/N is expected, with I from 0 to N - 1", text));
  return out;
}

/// Photos take the size that the graph asks for, windows of text its length.
Splits splits_for(const Session& session, const TrainArguments& o) {
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
  if (!o.distort.empty()) wanted.distortions = parse_distortions(o.distort, o.placement.seed);
  if (!o.shard.empty()) wanted.shard = shard_of(o.shard);
  return data_folder(o.data, wanted);
}

/// Means over one split, or over both together.
void evaluate_split(Session& session, const TrainArguments& o) {
  const Splits data = splits_for(session, o);
  std::vector<const DataSet*> parts;
  if (o.split != "test") parts.push_back(&data.train);
  if (o.split != "train") parts.push_back(&data.test);
  std::optional<AveragesInPlace> averages;
  if (o.averages) averages.emplace(session);
  std::int64_t rows = 0;
  for (const DataSet* part : parts) rows += part->rows();
  const Metrics means = evaluate(session, parts, o.batch);
  if (o.json) {
    std::vector<std::string> entries;
    for (const auto& [name, mean] : means) entries.push_back(json_text(name) + ": " + json_real(mean));
    std::cout << fmt::format("{{\"rows\": {}, \"means\": {{{}}}}}\n", rows, fmt::join(entries, ", "));
    return;
  }
  for (const auto& [name, mean] : means) std::cout << fmt::format("{} {:.6f}\n", name, mean);
  say(fmt::format("of {} rows\n", rows));
}

FitOptions fit_options_of(const TrainArguments& o, std::int64_t batch, const Splits& data) {
  FitOptions out;
  out.batch = batch;
  out.epochs = o.epochs;
  out.steps = o.steps;
  if (o.shuffle) out.shuffle = o.placement.seed;
  if (o.full_batches) out.last_batch = LastBatch::runs_on;
  if (o.drop_last) out.last_batch = LastBatch::dropped;
  out.validation = &data.test;
  out.averages = o.averages;
  out.checkpoints = o.checkpoints;
  out.checkpoint_every = o.checkpoint_every;
  out.keep = o.keep;
  out.patience = o.patience;
  out.monitor = o.monitor;
  out.log = o.log.empty() && !o.out.empty() ? (std::filesystem::path(o.out) / "log.jsonl").string() : o.log;
  out.tensorboard = o.tensorboard.empty() && !o.out.empty() ? (std::filesystem::path(o.out) / "tensorboard").string() : o.tensorboard;
  out.notice = [](const std::string& text) { say(text + "\n"); };
  return out;
}

/// From a checkpoint that was named, else from the latest of the folder.
void go_on(Session& session, const DataSet& data, const TrainArguments& o, FitOptions& options) {
  std::string from = o.resume;
  if (!from.empty()) {
    const Checkpoint checkpoint = Checkpoint::load(from);
    for (const std::string& d : differences(checkpoint, session, data, options)) say(fmt::format("{}: another run than this one: {}\n", from, d));
    resume(session, checkpoint, options);
  } else if (!o.checkpoints.empty()) {
    if (const auto latest = resume_latest(session, data, options)) from = latest->string();
  }
  if (from.empty()) return;
  const std::int64_t step = steps_of(session);
  say(fmt::format("going on from {}: step {}, epoch {}, row {}\n", from, step, session.data_progress.epoch + 1, session.data_progress.position));
  if (o.steps ? step >= o.steps : session.data_progress.epoch >= o.epochs)
    say(fmt::format("{}: the run has {} {} already, and {} asks for no more\n", from, o.steps ? step : session.data_progress.epoch, o.steps ? "steps" : "epochs",
                    o.steps ? fmt::format("--steps {}", o.steps) : fmt::format("--epochs {}", o.epochs)));
}

/// What the run was told, for `belfry runs`.
void write_run(Session& session, const TrainArguments& o, const FitOptions& options, const std::vector<std::string>& fetches) {
  nlohmann::ordered_json run = {{"net", o.source}, {"data", o.data}, {"batch", options.batch}};
  if (o.steps) run["steps"] = o.steps;
  else run["epochs"] = o.epochs;
  run["seed"] = o.placement.seed;
  run["shuffle"] = o.shuffle;
  run["full_batches"] = o.full_batches;
  if (o.drop_last) run["drop_last"] = true;
  if (!o.distort.empty()) run["distort"] = o.distort;
  if (!o.rescale.empty()) run["rescale"] = o.rescale;
  if (!o.shard.empty()) run["shard"] = o.shard;
  if (o.patience) run["patience"] = o.patience;
  run["precision"] = name_of(session.graph().precision);
  run["strategy"] = session.strategy().name;
  run["devices"] = o.placement.devices.empty() ? "cpu:0" : o.placement.devices;
  if (!session.strategy().loops) {
    const PlacedGraph& plan = session.plan(options.batch, Mode::step, fetches);
    run["towers"] = plan.towers;
    run["threads"] = plan.threads;
    run["arithmetic_hash"] = plan.arithmetic_hash;
  }
  if (!o.placement.options.empty()) run["options"] = fmt::format("{}", fmt::join(o.placement.options, " "));
  write_file((std::filesystem::path(o.out) / "run.json").string(), run.dump(1) + "\n");
}

/// Plan, variables and the trace of a step, in the folder.
void write_results(Session& session, const DataSet& data, const std::string& out, std::int64_t batch, const std::vector<std::string>& fetches) {
  const std::filesystem::path dir = out;
  State trained = session.state();
  if (session.strategy().loops) {
    write_safetensors(dir / "state.safetensors", trained);
    say(fmt::format("wrote {0}/state.safetensors; there is no trace, since no step is like another\n", out));
    return;
  }
  write_file((dir / "plan.json").string(), write_plan(session.plan(batch, Mode::step, fetches)));
  write_safetensors(dir / "state.safetensors", trained);
  // The trace is of a step as training runs it: the first ones wake the threads, and what they change is put back.
  session.set_trace(true);
  Batches batches(data, std::min(batch, data.rows()));
  const NamedTensors rows = batches.next();
  for (int k = 0; k < 10; ++k) session.step(rows, fetches);
  write_file((dir / "trace.json").string(), chrome_trace(session.last_program().bound(), session.trace(), session.gpu_readings()));
  session.load_state(trained);
  say(fmt::format("wrote {0}/plan.json, {0}/state.safetensors, {0}/trace.json\n", out));
}

void train(const TrainArguments& o, const std::shared_ptr<const Library>& library) {
  be_quiet(o.quiet);
  Source source = load_source(o.source, *library);
  refuse_broken(source, o.source);
  for (const std::string& folder : {o.out, o.checkpoints})
    if (!folder.empty()) make_folder(folder);  // before the work whose result goes there
  const std::int64_t said = batch_of(o.batch, source, o.placement), batch = said ? said : 32;
  Session session = make_session(source, o.placement, library);
  load_states(session, source, o.state);
  const Splits data = splits_for(session, o);
  FitOptions fit_options = fit_options_of(o, batch, data);
  go_on(session, data.train, o, fit_options);
  const std::vector<std::string> fetches = fit_fetches(session, fit_options);
  if (session.strategy().loops) say_loops(session, batch, fetches, o.out.empty() ? "" : (std::filesystem::path(o.out) / "plan.json").string());
  else {
    say(describe(session.plan(batch, Mode::step, fetches), {.memory = true, .nodes = false}));
    session.prepare({batch}, Mode::step, fetches);
    say_memory(session);
  }
  if (!o.out.empty()) remove_unfinished(o.out), write_run(session, o, fit_options, fetches);
  ProgressLine line(data.train.types().contains("image") ? "img" : "rows", writes_over() ? one_device_rate(session, data.train, batch, fetches) : std::nullopt);
  bool first = !session.strategy().loops;
  fit_options.on_batch = [&](const Progress& p) {
    if (std::exchange(first, false)) say_slow(session.plan(batch, Mode::step, fetches));
    line.batch(p);
  };
  fit_options.on_epoch = [&](const Progress& p) { line.epoch(p); };
  const History history = fit(session, data.train, fit_options);
  if (!history.empty() && history.back().loops) say(history.back().loops->text() + "\n");
  std::optional<AveragesInPlace> averages;
  if (o.averages) averages.emplace(session);
  Metrics result = evaluate(session, data.test);
  averages.reset();
  if (result.contains("accuracy")) std::cout << fmt::format("test accuracy {:.2f} %\n", 100 * result["accuracy"]);
  else std::cout << metrics_text(result) << "\n";
  if (!o.out.empty()) write_results(session, data.train, o.out, batch, fetches);
}

}  // namespace

namespace {

void add_data_options(CLI::App& verb, TrainArguments& o) {
  verb.add_option("--data", o.data, "a folder of MNIST, CIFAR-10, photos in class folders, .npz, .npy, .csv or *.txt, or a .npz; see belfry data inspect")->required()->check(CLI::ExistingPath);
  verb.add_flag("--antialias", o.antialias, "make photos smaller by the mean of all pixels, as Pillow does; by default as tf.image.resize");
  verb.add_option("--rescale", o.rescale, "pixels of photos and arrays of images: SCALE[,OFFSET] as in 1/255, or standardise; by default photos 1/127.5,-1");
}

}  // namespace

void add_train_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a net, graph or plan on images and their labels, or on text");
  verb->footer("Example: belfry train mnist_cnn --data mnist --devices cpu:0,cpu:1 -O variables=cpu:0 --batch 32 --epochs 5 --out run");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  add_data_options(*verb, *o);
  verb->add_option("--distort", o->distort, "pictures to train on change in each epoch: shear=DEGREES,zoom=PART,crop=PIXELS,flip=1,brightness=BYTES,contrast=PART; keyed by --seed, epoch and row");
  verb->add_option("--shard", o->shard, "I/N: of the rows to train on every N-th, from I on");
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  CLI::Option* epochs = verb->add_option("--epochs", o->epochs, "passes over the data, those before a checkpoint among them; by default 5")->check(whole(1, 1 << 30));
  verb->add_option("--steps", o->steps, "so many steps in place of epochs, those before a checkpoint among them")->check(count())->excludes(epochs);
  verb->add_flag("--shuffle", o->shuffle, "another order of the rows in each epoch, keyed by --seed");
  CLI::Option* full = verb->add_flag("--full-batches", o->full_batches, "no short batch at the end of an epoch: it runs on into the next");
  verb->add_flag("--drop-last", o->drop_last, "no short batch at the end of an epoch: its rows are left out")->excludes(full);
  verb->add_flag("--averages", o->averages, "evaluate with the moving averages of the variables");
  verb->add_option("--state", o->state, "initial variables by name")->check(CLI::ExistingFile);
  CLI::Option* folder = verb->add_option("--checkpoints", o->checkpoints, "a folder for a checkpoint after each epoch; the same command goes on from the latest, bit for bit");
  verb->add_option("--checkpoint-every", o->checkpoint_every, "a checkpoint after so many steps and at the end, in place of each epoch's")->check(count())->needs(folder);
  verb->add_option("--keep", o->keep, "so many checkpoints are kept; by default 3")->check(whole(1, 1 << 30))->needs(folder);
  verb->add_option("--resume", o->resume, "a checkpoint to go on from, in place of the folder's latest")->check(CLI::ExistingFile);
  CLI::Option* patience = verb->add_option("--patience", o->patience, "ends where so many epochs were no better, with the best one's variables")->check(whole(1, 1 << 30));
  verb->add_option("--monitor", o->monitor, "the metric for --patience, as val_accuracy or min:val_error; by default the loss on held-out rows")->needs(patience);
  verb->add_option("--log", o->log, "a file of a line of JSON for each step and each epoch: losses, metrics, learning rate; a run that goes on does so in it");
  verb->add_option("--tensorboard", o->tensorboard, "a folder for TensorBoard's event files; by default a part of --out");
  verb->add_option("--out", o->out, "a folder for the run: run.json, plan.json, log.jsonl, tensorboard/, state.safetensors and trace.json; see belfry runs");
  verb->add_flag("--quiet", o->quiet, "the result and errors alone: no words of the plan, of what is slow on purpose, or of progress");
  o->placement.add_to(*verb);
  verb->callback([o, library] { train(*o, library()); });
}

void add_evaluate_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  o->batch = 256;
  CLI::App* verb = app.add_subcommand("evaluate", "Losses and metrics on held-out data, with the graph for inference");
  verb->footer("Example: belfry evaluate mnist_cnn --data mnist --state run/state.safetensors");
  verb->add_option("source", o->source, "a net or a graph file")->required();
  add_data_options(*verb, *o);
  verb->add_option("--state", o->state, "variables by name")->check(CLI::ExistingFile);
  verb->add_option("--batch", o->batch, "rows at a time")->check(count());
  verb->add_flag("--averages", o->averages, "with the moving averages of the variables in their place");
  verb->add_option("--split", o->split, "train, test or all; by default test, the rows held out")->check(CLI::IsMember({"train", "test", "all"}));
  verb->add_flag("--json", o->json, "for machines");
  o->placement.add_to(*verb);
  verb->callback([o, library] {
    std::shared_ptr<const Library> all = library();
    Source source = load_source(o->source, *all);
    refuse_broken(source, o->source);
    Session session = make_session(source, o->placement, all);
    load_states(session, source, o->state);
    say_initial(session, source, o->state);
    evaluate_split(session, *o);
  });
}

}  // namespace belfry
