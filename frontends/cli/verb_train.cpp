#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/optimizer_options_internal.h>
#include <belfry/frontends/cli/paths_internal.h>
#include <belfry/frontends/cli/progress_internal.h>
#include <belfry/frontends/cli/signals_internal.h>
#include <belfry/frontends/cli/train_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/utf8.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/json/values.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/run_folder.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

void say_memory(Session& session) {
  const std::shared_ptr<const Program> kept = session.last_program();
  const Program& program = *kept;
  for (std::size_t s = 0; s < program.bound().spaces.size(); ++s)
    say(fmt::format("memory of {}: planned {} bytes, allocated {} bytes\n", program.bound().spaces[s], program.bound().arena_bytes[s], program.allocated(static_cast<int>(s))));
}

/// What is trained where, in how much memory: two lines of all that describe says.
std::string in_short(const PlacedGraph& plan) {
  constexpr std::size_t kShown = 4;
  const std::string all = describe(plan, {.nodes = false});
  const std::vector<DeviceBytes> bytes = device_bytes(plan);
  std::string memory;
  for (std::size_t d = 0; d < std::min(kShown, bytes.size()); ++d) memory += fmt::format("{}{} {}", d ? ", " : "", to_string(plan.cluster.devices[d].id), human_bytes(bytes[d].total()));
  if (bytes.size() > kShown) memory += fmt::format(" and {} more", bytes.size() - kShown);
  return fmt::format("{}memory planned: {}; --verbose says more of the plan\n", all.substr(0, all.find('\n') + 1), memory);
}

/// What was evaluated, as entries of an object.
std::string means_text(std::int64_t rows, const Metrics& means) {
  std::vector<std::string> entries;
  for (const auto& [name, mean] : means) entries.push_back(json_text(name) + ": " + json_real(mean));
  return fmt::format("\"rows\": {}, \"means\": {{{}}}", rows, fmt::join(entries, ", "));
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
    std::cout << fmt::format("{{{}}}\n", means_text(rows, means));
    return;
  }
  for (const auto& [name, mean] : means) std::cout << metric_text(name, mean, 6) << "\n";
  say(fmt::format("of {} rows\n", rows));
}

FitOptions fit_options_of(const TrainArguments& o, std::int64_t batch, const Splits& data, const DataWanted& wanted) {
  FitOptions out;
  const auto pixels = pixels_of(o.data, wanted);
  out.told = {{"pixels", pixels ? to_string(pixels->rescale) : "as they are"}, {"held out", o.hold_out > 0 ? fmt::format("{}", o.hold_out) : "what is apart"}};
  if (const bool is_table = data_kind(o.data) == DataKind::tables; !o.checkpoints.empty() || !o.resume.empty()) {
    if (is_table || !data.classes.empty()) out.told[kClassesTold] = names_told(data.classes);
    if (is_table) out.told[kFeaturesTold] = names_told(data.features);
  }
  out.batch = batch;
  out.epochs = o.epochs;
  out.steps = o.steps;
  if (shuffles(o, data.train)) out.shuffle = o.placement.seed;
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

/// From a checkpoint that was named, else from the latest of the folder. Whether nothing is left to train.
bool go_on(Session& session, const DataSet& data, const TrainArguments& o, FitOptions& options) {
  std::string from = o.resume;
  if (!from.empty()) {
    const Checkpoint checkpoint = Checkpoint::load(from);
    const std::vector<std::string> other = differences(checkpoint, session, data, options);
    if (!other.empty() && goes_on_there(o)) throw UserError(fmt::format("{}: is of another run ({}) than this one, whose log {} would go on: name another folder for it", from, fmt::join(other, "; "), o.out));
    for (const std::string& d : other) say(fmt::format("{}: another run than this one: {}\n", from, d));
    try {
      resume(session, checkpoint, options);
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: {}; name one of this net and optimizer; --state {} begins with the variables that they have in common", from, e.what(), from));
    }
  } else if (!o.checkpoints.empty() && !o.overwrite) {
    try {
      if (const auto latest = resume_latest(session, data, options)) from = latest->string();
    } catch (const OtherRun& e) {
      if (!goes_on_there(o)) throw;
      throw UserError(fmt::format("{}, or replace that run with --overwrite", e.what()));
    }
  }
  if (from.empty()) return false;
  const std::int64_t step = steps_of(session);
  say(fmt::format("going on from {}: step {}, epoch {}, row {}\n", from, step, session.data_progress.epoch + 1, session.data_progress.position));
  if (!o.state.empty()) say(fmt::format("--state {}: does nothing here, since the variables are those of the checkpoint\n", o.state));
  const std::int64_t taken = session.data_progress.steps_of_run;
  const bool done = o.steps ? taken >= o.steps : session.data_progress.epoch >= o.epochs;
  if (done)
    say(fmt::format("{}: the run has {} {} already, and {} asks for no more\n", from, o.steps ? taken : session.data_progress.epoch, o.steps ? "steps" : "epochs",
                    o.steps ? fmt::format("--steps {}", o.steps) : fmt::format("--epochs {}", o.epochs)));
  return done;
}

/// Whether the run in the folder has all its results.
bool has_ended(const std::string& run) {
  std::error_code error;
  return is_run_folder(run) && read_run_facts(run).ended && std::filesystem::exists(std::filesystem::path(run) / "state.safetensors", error);
}

void refuse_names_taken(const TrainArguments& o, const Graph& graph, const std::vector<std::string>& fetches) {
  if (const std::string taken = o.json ? name_taken(fetches, LogLines::epochs) : ""; !taken.empty())
    throw UserError(fmt::format("the {} has the name of what each epoch of --json says of itself; give it another name, or train without --json", metric_or_loss(graph, taken)));
}

/// Of a run that a signal has ended.
std::string what_goes_on(const TrainArguments& o) {
  if (o.checkpoints.empty()) return o.out.empty() ? "its variables are kept nowhere without --out or --checkpoints" : "its results are those until there; with --checkpoints it could go on from there";
  const std::string without = fmt::format("{}{}{}", o.overwrite ? "--overwrite" : "", o.overwrite && !o.resume.empty() ? " and " : "", o.resume.empty() ? "" : "--resume");
  return fmt::format("the same command{}{} goes on from there", without.empty() ? "" : " without ", without);
}

void train(const TrainArguments& o, const std::shared_ptr<const Library>& library, FolderLocks& locks) {
  Source source = load_source(o.source, *library);
  refuse_broken(source, o.source, *library);
  refuse_run_there(o);
  refuse_written_over(o, source);
  for (const std::string& folder : {o.out, o.checkpoints})
    if (!folder.empty()) make_folder(folder), refuse_closed(folder), locks.add(folder);  // before the work whose result goes there
  const std::int64_t said = batch_of(o.batch, source, o.placement), batch = said ? said : 32;
  Session session = make_session(source, o.placement, library);
  load_states(session, source, o.state);
  const Splits data = splits_for(session, o);
  FitOptions fit_options = fit_options_of(o, batch, data, data_wanted(session, o));
  if (o.averages) check_averages(session);  // before a run that is there says so
  const bool done = go_on(session, data.train, o, fit_options);
  const std::vector<std::string> fetches = fit_fetches(session, fit_options);
  refuse_names_taken(o, session.graph(), fetches);
  if (!session.strategy().loops) {
    const PlacedGraph& plan = session.plan(batch, Mode::step, fetches);
    say(o.verbose ? describe(plan, {.memory = true, .nodes = false}) : in_short(plan));
    session.prepare({batch}, Mode::step, fetches);
    if (o.verbose) say_memory(session);
  }
  RunFacts run;
  BegunRun begun;
  const bool writes = !o.out.empty() && !(done && has_ended(o.out));
  if (!o.out.empty()) remove_unfinished(o.out);  // of one that has ended, too: a kill may have met its trace
  if (writes) begun.begin(o), run = write_run(session, o, data, fit_options, fetches);
  if (session.strategy().loops) say_loops(session, batch, fetches, !writes ? "" : (std::filesystem::path(o.out) / "plan.json").string());
  std::int64_t taken = session.data_progress.steps_of_run, epoch = session.data_progress.epoch;
  ProgressLine line(data.train.types().contains("image") ? "img" : "rows", writes_over() ? one_device_rate(session, data.train, batch, fetches) : std::nullopt);
  bool first = !session.strategy().loops;
  fit_options.on_batch = [&](const Progress& p) {
    begun.stepped();
    ++taken, epoch = p.epoch;
    if (std::exchange(first, false)) say_slow(session.plan(batch, Mode::step, fetches), o.verbose);
    line.batch(p);
  };
  std::vector<std::string> epochs;
  fit_options.on_epoch = [&](const Progress& p) {
    line.epoch(p);
    if (o.json) epochs.push_back(epoch_line(p));
  };
  std::optional<EndsOnSignal> asked(std::in_place, o.quiet);
  fit_options.ends = [&asked] { return asked->signal() != 0; };
  const History history = fit(session, data.train, fit_options);
  const std::int64_t steps = session.data_progress.steps_of_run;
  const bool whole = o.steps ? taken >= o.steps : session.data_progress.epoch >= o.epochs;
  if (!history.empty() && history.back().loops) say(history.back().loops->text() + "\n");
  if (writes) write_results(session, data.train, o.out, std::move(run), batch, fetches);
  const int signal = asked->signal();
  asked.reset();  // all is written: a signal to come ends the evaluation
  std::optional<AveragesInPlace> averages;
  if (o.averages) averages.emplace(session);
  Metrics result = evaluate(session, data.test, std::min(kRowsEvaluated, batch));
  averages.reset();
  if (o.json) {
    const std::string run_folder = o.out.empty() ? "" : fmt::format("\"run\": {}, ", json_text(printable(o.out)));
    std::cout << fmt::format("{{{}{}, \"steps\": {}, \"epochs\": {}}}\n", run_folder, means_text(data.test.rows(), result), steps, json_lines(epochs));
  } else if (result.contains("accuracy")) std::cout << fmt::format("test accuracy {:.2f} %\n", 100 * result["accuracy"]);
  else std::cout << metrics_text(result) << "\n";
  if (signal == 0) return;
  say(fmt::format("{} {}\n", name_of_signal(signal), whole ? "came when the run had all its steps" : fmt::format("ended the run after {} steps, in epoch {}: {}", taken, epoch + 1, what_goes_on(o))));
  begun.stepped();  // what was written stays
  throw CLI::RuntimeError(128 + signal);
}

}  // namespace

namespace {

void add_data_options(CLI::App& verb, TrainArguments& o) {
  verb.add_option("--data", o.data, "a folder of MNIST, CIFAR-10, photos in class folders, .npz, .npy, .csv or *.txt, or a .npz or .csv; see belfry data inspect")->required()->check(is_data());
  verb.add_option("--hold-out", o.hold_out, "of photos, arrays and tables that come in one part: as much of it to test on, by a hash of names or row numbers")->type_name("FRACTION")->check(fraction(0.001, 0.999));
  verb.add_flag("--antialias", o.antialias, "make photos smaller by the mean of all pixels, as Pillow does; by default as tf.image.resize");
  verb.add_option("--rescale", o.rescale, "pixels of photos and arrays of images: SCALE[,OFFSET] as in 1/255, or standardise; by default photos 1/127.5,-1")->check(offers({"1/255", "1/127.5,-1", "standardise"}));
}

/// What a run's folder says of it is another matter: it may be evaluated on other data.
void refuse_idle_antialias(const TrainArguments& o) {
  if (!o.antialias) return;
  if (const DataKind kind = data_kind(o.data); kind != DataKind::photos) throw WrongUse(fmt::format("--antialias is of photos, and {} has {}, which are not resized so: leave it out", o.data, name_of(kind)));
}

}  // namespace

void add_train_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a net, graph or plan on images and their labels, or on text");
  verb->footer("Example: belfry train mnist_cnn --data mnist --devices cpu:0,cpu:1 -O variables=cpu:0 --batch 32 --epochs 5 --out run");
  verb->add_option("source", o->source, "a net, a graph file, a plan file or a run's folder")->required()->check(offers_nets());
  add_data_options(*verb, *o);
  verb->add_option("--distort", o->distort, "pictures to train on change in each epoch: shear=DEGREES,zoom=PART,crop=PIXELS,flip=1,brightness=BYTES,contrast=PART; keyed by --seed, epoch and row")
      ->check(offers_list({"shear=", "zoom=", "crop=", "flip=", "brightness=", "contrast="}));
  verb->add_option("--shard", o->shard, "I/N: of the rows to train on every N-th, from I on")->type_name("I/N");
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  CLI::Option* epochs = verb->add_option("--epochs", o->epochs, fmt::format("passes over the data, those before a checkpoint among them; by default {}", o->epochs))->check(whole(1, 1 << 30));
  verb->add_option("--steps", o->steps, "so many steps in place of epochs, those before a checkpoint among them")->check(count());
  CLI::Option* shuffle = verb->add_flag("--shuffle", o->shuffle, "another order of the rows in each epoch, keyed by --seed; photos come so by themselves");
  verb->add_flag("--no-shuffle", o->no_shuffle, "photos class by class, as they lie in their folders")->excludes(shuffle);
  CLI::Option* full = verb->add_flag("--full-batches", o->full_batches, "no short batch at the end of an epoch: it runs on into the next");
  verb->add_flag("--drop-last", o->drop_last, "no short batch at the end of an epoch: its rows are left out")->excludes(full);
  verb->add_flag("--averages", o->averages, "evaluate with the moving averages of the variables");
  verb->add_option("--state", o->state, "initial variables by name")->check(is_file());
  CLI::Option* folder = verb->add_option("--checkpoints", o->checkpoints, "a folder for a checkpoint after each epoch; the same command goes on from the latest, bit for bit");
  verb->add_option("--checkpoint-every", o->checkpoint_every, "a checkpoint after so many steps and at the end, in place of each epoch's")->check(count())->needs(folder);
  verb->add_option("--keep", o->keep, fmt::format("so many checkpoints are kept; by default {}", o->keep))->check(whole(1, 1 << 30))->needs(folder);
  verb->add_option("--resume", o->resume, "a checkpoint to go on from, in place of the folder's latest")->check(is_checkpoint());
  CLI::Option* patience = verb->add_option("--patience", o->patience, "ends where so many epochs were no better, with the best one's variables")->check(whole(1, 1 << 30));
  verb->add_option("--monitor", o->monitor, "the metric for --patience, as val_accuracy or min:val_error; by default the loss on held-out rows")->type_name("METRIC")->needs(patience);
  verb->add_option("--log", o->log, "a file of a line of JSON for each step and each epoch: losses, metrics, learning rate; a run that goes on does so in it");
  verb->add_option("--tensorboard", o->tensorboard, "a folder for TensorBoard's event files; by default a part of --out");
  verb->add_option("--out", o->out, "a folder for the run: run.json, graph.json, plan.json, log.jsonl, tensorboard/, state.safetensors and trace.json; see belfry runs and belfry predict");
  verb->add_flag("--overwrite", o->overwrite, "of --out: replaces the run that is there, and its checkpoints where --checkpoints names their folder");
  CLI::Option* verbose = verb->add_flag("--verbose", o->verbose, "all of the plan's streams, links and memory, and of what is slow on purpose");
  verb->add_flag("--quiet", o->quiet, "the result and errors alone: no words of the plan, of what is slow on purpose, or of progress")->excludes(verbose);
  verb->add_flag("--json", o->json, "the result for machines, as one value at the end: rows, means and steps, epochs as in the log; for a line a step meanwhile see --log");
  add_optimizer_options(*verb, o->placement);
  o->placement.add_to(*verb);
  verb->callback([o, library, epochs] {
    refuse_idle_antialias(*o);
    if (o->steps && epochs->count()) throw WrongUse("--steps and --epochs both say how long: leave one out");
    o->placement.brief = !o->verbose;
    be_quiet(o->quiet);
    FolderLocks locks;
    for (const std::string& folder : {o->out, o->checkpoints}) locks.add(folder);
    put_back_replaced(*o);  // it may be the source
    if (is_run_folder(o->source)) take_from_run(*o, false);
    if (!o->resume.empty()) take_names(o->classes, o->features, o->resume);
    train(*o, library(), locks);
  });
}

void add_evaluate_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  o->batch = kRowsEvaluated;
  o->evaluates = true;
  CLI::App* verb = app.add_subcommand("evaluate", "Losses and metrics on held-out data, with the graph for inference");
  verb->footer("Example: belfry evaluate mnist_cnn --data mnist --state run/state.safetensors");
  verb->add_option("source", o->source, "a net, a graph file or a run's folder")->required()->check(offers_nets());
  add_data_options(*verb, *o);
  verb->add_option("--state", o->state, "variables by name")->check(is_file());
  verb->add_option("--batch", o->batch, fmt::format("rows at a time; by default {}", o->batch))->check(count());
  verb->add_flag("--averages", o->averages, "with the moving averages of the variables in their place");
  verb->add_option("--split", o->split, "train, test or all; by default test, the rows held out")->check(one_of({"train", "test", "all"}));
  verb->add_flag("--json", o->json, "for machines");
  o->placement.add_to(*verb);
  verb->callback([o, library] {
    if (o->placement.recompute) throw WrongUse("--recompute is of backward passes, and evaluate has none: leave it out");
    refuse_idle_antialias(*o);
    std::shared_ptr<const Library> all = library();
    Source source = load_source(o->source, *all);
    refuse_broken(source, o->source, *all);
    if (!source.run.empty()) take_from_run(*o, true);
    Session session = make_session(source, o->placement, all);
    load_states(session, source, o->state);
    if (const std::string& weights = o->state.empty() ? source.state : o->state; !weights.empty()) take_names(o->classes, o->features, weights);
    say_initial(session, source, o->state);
    evaluate_split(session, *o);
  });
}

}  // namespace belfry
