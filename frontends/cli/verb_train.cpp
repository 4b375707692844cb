#include <CLI/CLI.hpp>

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/draw/describe.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/session/trace.h>
#include <belfry/frontends/train/fit.h>

namespace belfry {

namespace {

constexpr const char* kAntialias = "make photos smaller by the mean of all pixels, as Pillow does; by default as tf.image.resize";

struct TrainArguments {
  std::string source, data, out, checkpoints, resume, state, log, split = "test";
  std::int64_t batch = 0, steps = 0;
  int epochs = 5;
  bool shuffle = false, full_batches = false, averages = false, antialias = false;
  PlacementArguments placement;
};

std::string metrics_text(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += fmt::format("  {} {:.4f}", name, value);
  return out;
}

/// One line that is written over on a terminal; a line per epoch elsewhere.
class ProgressLine {
 public:
  void batch(const Progress& p) {
    if (!terminal_ || (p.batch % 10 && p.batch != p.batches)) return;
    say(fmt::format("\r\x1b[KEpoch {:2}/{:2}  {:4}/{:4}  {:.0f} img/s{}", p.epoch + 1, p.epochs, p.batch, p.batches, p.rows_per_second, metrics_text(p.metrics)));
  }
  void epoch(const Progress& p) {
    say(fmt::format("{}Epoch {:2}/{:2}  {:.1f} s  {:.0f} img/s{}\n", terminal_ ? "\r\x1b[K" : "", p.epoch + 1, p.epochs, p.seconds, p.rows_per_second, metrics_text(p.metrics)));
  }

 private:
  bool terminal_ = isatty(2) && !std::getenv("NO_COLOR");
};

void say_memory(Session& session) {
  const Program& program = session.last_program();
  for (std::size_t s = 0; s < program.bound().spaces.size(); ++s)
    say(fmt::format("memory of {}: planned {} bytes, allocated {} bytes\n", program.bound().spaces[s], program.bound().arena_bytes[s], program.allocated(static_cast<int>(s))));
}

/// Photos take the size that the graph asks for, windows of text its length.
Splits splits_for(const Session& session, const TrainArguments& o) {
  DataWanted wanted{.antialias = o.antialias};
  for (NodeId id : session.graph().inputs()) {
    const Shape& shape = session.graph().node(id).types[0].shape;
    if (session.graph().node(id).name == "image" && shape.size() == 4) wanted.height = shape[1].factor, wanted.width = shape[2].factor;
    if (session.graph().node(id).name == "tokens" && shape.size() == 2) wanted.length = shape[1].factor;
  }
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
  for (const auto& [name, mean] : evaluate(session, parts, o.batch)) std::cout << fmt::format("{} {:.6f}\n", name, mean);
  std::int64_t rows = 0;
  for (const DataSet* part : parts) rows += part->rows();
  say(fmt::format("of {} rows\n", rows));
}

void train(const TrainArguments& o, const std::shared_ptr<const Library>& library) {
  Source source = load_source(o.source, *library);
  refuse_broken(source, o.source);
  if (!o.out.empty()) make_folder(o.out);  // before the work whose result goes there
  const std::int64_t said = batch_of(o.batch, source, o.placement), batch = said ? said : 32;
  Session session = make_session(source, o.placement, library);
  load_states(session, source, o.state);
  if (!o.resume.empty()) Checkpoint::load(o.resume).restore(session);
  const Splits data = splits_for(session, o);
  FitOptions fit_options;
  fit_options.log = o.log;
  const std::vector<std::string> fetches = fit_fetches(session, fit_options);
  const bool loops = session.strategy().loops.has_value();
  if (loops) say_loops(session, batch, fetches, o.out.empty() ? "" : (std::filesystem::path(o.out) / "plan.json").string());
  else {
    say(describe(session.plan(batch, Mode::step, fetches), {.memory = true, .nodes = false}));
    session.prepare({batch}, Mode::step, fetches);
    say_memory(session);
  }
  ProgressLine line;
  fit_options.batch = batch;
  fit_options.epochs = o.epochs;
  fit_options.resumed = !o.resume.empty();
  if (fit_options.resumed && !o.steps && session.data_progress.epoch >= o.epochs)
    say(fmt::format("{}: the run has {} epochs already, and --epochs {} asks for no more\n", o.resume, session.data_progress.epoch, o.epochs));
  fit_options.steps = o.steps;
  if (o.shuffle) fit_options.shuffle = o.placement.seed;
  fit_options.full_batches = o.full_batches;
  fit_options.validation = &data.test;
  fit_options.averages = o.averages;
  fit_options.checkpoints = o.checkpoints;
  fit_options.on_batch = [&](const Progress& p) { line.batch(p); };
  fit_options.on_epoch = [&](const Progress& p) { line.epoch(p); };
  const History history = fit(session, data.train, fit_options);
  if (loops && !history.empty() && history.back().loops) say(history.back().loops->text() + "\n");
  std::optional<AveragesInPlace> averages;
  if (o.averages) averages.emplace(session);
  Metrics result = evaluate(session, data.test);
  averages.reset();
  if (result.contains("accuracy")) std::cout << fmt::format("test accuracy {:.2f} %\n", 100 * result["accuracy"]);
  else std::cout << metrics_text(result) << "\n";
  if (o.out.empty()) return;
  std::filesystem::path dir = o.out;
  State trained = session.state();
  if (loops) {
    write_safetensors(dir / "state.safetensors", trained);
    say(fmt::format("wrote {0}/state.safetensors; there is no trace, since no step is like another\n", o.out));
    return;
  }
  write_file((dir / "plan.json").string(), write_plan(session.plan(batch, Mode::step, fetches)));
  write_safetensors(dir / "state.safetensors", trained);
  // The trace is of a step as training runs it: the first ones wake the threads, and what they change is put back.
  session.set_trace(true);
  const DataSet rows = data.train.slice(0, std::min(batch, data.train.rows()));
  for (int k = 0; k < 10; ++k) session.step(rows.columns, fetches);
  write_file((dir / "trace.json").string(), chrome_trace(session.last_program().bound(), session.trace(), session.gpu_readings()));
  session.load_state(trained);
  say(fmt::format("wrote {0}/plan.json, {0}/state.safetensors, {0}/trace.json\n", o.out));
}

}  // namespace

void add_train_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a net, graph or plan on images and their labels, or on text");
  verb->footer("Example: belfry train mnist_cnn --data mnist --devices cpu:0,cpu:1 -O variables=cpu:0 --batch 32 --epochs 5 --out run");
  verb->add_option("source", o->source, "a net, a graph file or a plan file")->required();
  verb->add_option("--data", o->data, "a folder: MNIST's IDX files, CIFAR-10's binary batches, photos in train/CLASS and val/CLASS, or *.txt")->required()->check(CLI::ExistingDirectory);
  verb->add_option("--batch", o->batch, "global rows of a step; by default the plan's or the placement file's, else 32")->check(count());
  CLI::Option* epochs = verb->add_option("--epochs", o->epochs, "passes over the data, those before --resume among them; by default 5")->check(whole(1, 1 << 30));
  verb->add_option("--steps", o->steps, "so many steps, in place of epochs")->check(count())->excludes(epochs);
  verb->add_flag("--antialias", o->antialias, kAntialias);
  verb->add_flag("--shuffle", o->shuffle, "another order of the rows in each epoch, keyed by --seed");
  verb->add_flag("--full-batches", o->full_batches, "no short batch at the end of an epoch: it runs on into the next");
  verb->add_flag("--averages", o->averages, "evaluate with the moving averages of the variables");
  verb->add_option("--state", o->state, "initial variables by name")->check(CLI::ExistingFile);
  verb->add_option("--checkpoints", o->checkpoints, "a folder for a checkpoint after each epoch; the last three are kept");
  verb->add_option("--resume", o->resume, "a checkpoint to go on from")->check(CLI::ExistingFile);
  verb->add_option("--log", o->log, "a file of a line of JSON for each step and each epoch: losses, metrics, learning rate; --resume goes on in it");
  verb->add_option("--out", o->out, "a folder for plan.json, state.safetensors and trace.json");
  o->placement.add_to(*verb);
  verb->callback([o, library] { train(*o, library()); });
}

void add_evaluate_verb(CLI::App& app, const LibrarySource& library) {
  auto o = std::make_shared<TrainArguments>();
  o->batch = 256;
  CLI::App* verb = app.add_subcommand("evaluate", "Losses and metrics on held-out data, with the graph for inference");
  verb->footer("Example: belfry evaluate mnist_cnn --data mnist --state run/state.safetensors");
  verb->add_option("source", o->source, "a net or a graph file")->required();
  verb->add_option("--data", o->data, "a folder: MNIST's IDX files, CIFAR-10's binary batches, photos in train/CLASS and val/CLASS, or *.txt")->required()->check(CLI::ExistingDirectory);
  verb->add_option("--state", o->state, "variables by name")->check(CLI::ExistingFile);
  verb->add_option("--batch", o->batch, "rows at a time")->check(count());
  verb->add_flag("--averages", o->averages, "with the moving averages of the variables in their place");
  verb->add_option("--split", o->split, "train, test or all; by default test, the rows held out")->check(CLI::IsMember({"train", "test", "all"}));
  verb->add_flag("--antialias", o->antialias, kAntialias);
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
