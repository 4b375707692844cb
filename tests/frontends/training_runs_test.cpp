#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include <belfry/belfry.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/train/early_stop_internal.h>
#include <belfry/frontends/train/input_internal.h>
#include <belfry/frontends/train/means_internal.h>

#include "comma_locale.h"
#include "files.h"
#include "line.h"
#include "says.h"

namespace belfry::test {
namespace {

TEST(TrainingRuns, one_that_was_stopped_within_an_epoch_goes_on_to_the_same_curves_and_bits) {
  Folder folder;
  const DataSet data = points(50);
  std::vector<Metrics> curves;
  FitOptions options{.batch = 8, .epochs = 3, .shuffle = 4, .validation = &data, .on_epoch = [&](const Progress& p) { curves.push_back(p.metrics); }};
  Session whole(line(), Single{});
  fit(whole, data, options);
  EXPECT_EQ(steps_of(whole), 21);
  const std::vector<Metrics> expected = std::exchange(curves, {});

  options.checkpoints = folder.path().string();
  options.checkpoint_every = 4;
  options.keep = 2;
  for (int stop : {2, 9, 4, 100}) {  // before the first checkpoint, behind one within the second epoch, …
    Session session(line(), Single{});
    FitOptions part = options;
    resume_latest(session, data, part);
    if (stop == 100) {
      EXPECT_EQ(steps_of(session), 12);
    }
    part.on_batch = [&](const Progress& p) {
      if (stop-- == 0) throw Stop{};
      EXPECT_EQ(p.batch, (p.step - 1) % 7 + 1);
    };
    if (stop != 100) {
      EXPECT_THROW(fit(session, data, part), Stop);
      continue;
    }
    fit(session, data, part);
    EXPECT_EQ(session.state(), whole.state());
  }
  EXPECT_EQ(curves, expected);
  EXPECT_THAT(folder.names(), testing::UnorderedElementsAre("step-00000020.safetensors", "step-00000021.safetensors"));
  Session again(line(), Single{});
  FitOptions part = options;
  part.keep = 1;  // less than there is
  ASSERT_TRUE(resume_latest(again, data, part));
  EXPECT_TRUE(fit(again, data, part).empty());
  EXPECT_THAT(folder.names(), testing::ElementsAre("step-00000021.safetensors"));
}

TEST(TrainingRuns, one_that_is_told_to_end_has_a_checkpoint_of_its_last_step_and_goes_on_from_there) {
  Folder folder;
  const DataSet data = points(50);
  FitOptions options{.batch = 8, .epochs = 3, .shuffle = 4, .validation = &data};
  Session whole(line(), Single{});
  fit(whole, data, options);
  options.checkpoints = folder.path().string();
  for (int end : {3, 10, 14}) {  // within an epoch, within the next one, at an epoch's end
    Session session(line(), Single{});
    FitOptions part = options;
    resume_latest(session, data, part);
    part.ends = [&] { return steps_of(session) >= end; };
    EXPECT_EQ(fit(session, data, part).back().metrics.contains("val_loss"), end == 14) << "an epoch that is not over is not validated";
    EXPECT_EQ(steps_of(session), end);
    EXPECT_EQ(latest_checkpoint_step(folder.path()), end);
  }
  Session session(line(), Single{});
  resume_latest(session, data, options);
  fit(session, data, options);
  EXPECT_EQ(session.state(), whole.state());
}

TEST(TrainingRuns, steps_are_those_of_the_run_wherever_its_clock_began) {
  Folder folder;
  const DataSet data = points(50);
  Session before(line(), Single{});
  fit(before, data, {.batch = 8, .steps = 5});
  auto begun = [&] {
    auto out = std::make_unique<Session>(line(), Single{});
    out->load_state(before.state());
    return out;
  };
  FitOptions options{.batch = 8, .steps = 8};
  const auto whole = begun(), part = begun(), rest = begun();
  fit(*whole, data, options);
  options.checkpoints = folder.path().string();
  options.checkpoint_every = 2;
  EXPECT_FALSE(resume_latest(*part, data, options));
  int left = 4;
  options.on_batch = [&](const Progress&) {
    if (left-- == 0) throw Stop{};
  };
  EXPECT_THROW(fit(*part, data, options), Stop);
  options.on_batch = {};
  EXPECT_EQ(resume_latest(*rest, data, options), checkpoint_path(folder.path(), 8));  // even steps of the session are due
  EXPECT_EQ(rest->data_progress.steps_of_run, 3);
  fit(*rest, data, options);
  EXPECT_EQ(rest->data_progress.steps_of_run, 8);
  EXPECT_EQ(steps_of(*rest), 13);
  EXPECT_EQ(rest->state(), whole->state());
  EXPECT_TRUE(fit(*rest, data, options).empty());
}

TEST(TrainingRuns, a_damaged_checkpoint_names_the_one_before_it) {
  Folder folder;
  const DataSet data = points(16);
  FitOptions options{.batch = 8, .epochs = 2, .checkpoints = folder.path().string()};
  Session whole(line(), Single{});
  fit(whole, data, options);
  const std::filesystem::path first = checkpoint_path(folder.path(), 2), last = checkpoint_path(folder.path(), 4);
  const std::string good = text_of(last);
  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  Session session(line(), Single{});
  for (const std::string& bad : {flipped, good.substr(0, good.size() - 4)}) {
    write_text(last, bad);
    EXPECT_TRUE(says<UserError>([&] { resume_latest(session, data, options); }, {last.string(), "; move that file away, and the run goes on from " + first.string()}));
  }
  std::filesystem::remove(last);
  ASSERT_EQ(resume_latest(session, data, options), first);
  fit(session, data, options);
  EXPECT_EQ(session.state(), whole.state());
  EXPECT_EQ(text_of(last), good);
  std::filesystem::remove(first);
  write_text(last, flipped);
  EXPECT_TRUE(says<UserError>([&] { resume_latest(session, data, options); }, {"the file is damaged", "; move that file away, and the run begins anew"}));
}

TEST(TrainingRuns, a_folder_of_another_run_is_neither_gone_on_from_nor_written_over) {
  Folder folder;
  const DataSet data = points(16);
  FitOptions options{.batch = 8, .epochs = 1, .checkpoints = folder.path().string()};
  Session session(line(), Single{});
  fit(session, data, options);
  Session other(line(), Single{}, {.seed = 1});
  FitOptions wider{.batch = 16, .shuffle = 3, .checkpoints = folder.path().string()};
  EXPECT_TRUE(says<UserError>([&] { resume_latest(other, data, wider); }, {"batch: 8 there, 16 here; order: that of the data there, shuffled by 3 here; seed: 0 there, 1 here"}));
  EXPECT_TRUE(says<UserError>([&] { fit(other, data, wider); }, {"has a checkpoint of step 2, and this training goes on from step 0"}));
  // Another rate is another graph of that name: who names the checkpoint goes on from it, and is told.
  Session slower(line(0.01), Single{});
  std::string told;
  options.notice = [&](const std::string& text) { told += text; };
  EXPECT_TRUE(says<UserError>([&] { resume_latest(slower, data, options); }, {"is of another run (hash of the graph: "}));
  resume(slower, Checkpoint::load(latest_checkpoint(folder.path())->string()), options);
  EXPECT_THAT(told, testing::HasSubstr("computes otherwise"));
  // Devices that the graph asks for are no part of it.
  Graph asked = line();
  for (NodeId id = 0; id < asked.size(); ++id) asked.edit(id).device = cpu(0);
  Session placed(std::move(asked), Single{});
  EXPECT_TRUE(resume_latest(placed, data, options));
}

TEST(TrainingRuns, checkpoints_know_the_values_of_their_data_and_what_was_done_to_them) {
  Folder folder;
  const DataSet data = points(16);
  DataSet others = points(16);
  others.columns.at("y").data<float>()[9] += 1;
  FitOptions options{.batch = 8, .checkpoints = folder.path().string(), .told = {{"pixels", "x / 255"}}};
  Session session(line(), Single{});
  fit(session, data, options);
  EXPECT_TRUE(says<UserError>([&] { resume_latest(session, others, options); }, {"is of another run (values of the data: "}));
  options.told["pixels"] = "as they are";
  EXPECT_TRUE(says<UserError>([&] { resume_latest(session, others, options); }, {"is of another run (pixels: x / 255 there, as they are here)"}));
  // One that does not say goes on.
  Checkpoint::of(session, {{"batch", "8"}}).save(checkpoint_path(folder.path(), 9).string());
  EXPECT_TRUE(resume_latest(session, others, options));
  // Of what is made row by row they know what it is made of.
  Folder second;
  auto made_of = [](std::uint64_t source) {
    DataSet out = points(16);
    out.columns.erase("x");
    out.made["x"] = {LocalType{f32, {}}, "made", [](const RowKey&, std::span<std::byte> row) { std::fill(row.begin(), row.end(), std::byte{0}); }, [source] { return source; }};
    return out;
  };
  options.checkpoints = second.path().string();
  Session of_made(line(), Single{});
  fit(of_made, made_of(1), {.batch = 8, .checkpoints = options.checkpoints});
  EXPECT_TRUE(says<UserError>([&] { resume_latest(of_made, made_of(2), options); }, {"is of another run (what the data are made of: "}));
  EXPECT_TRUE(resume_latest(of_made, made_of(1), options));
}

TEST(TrainingRuns, an_early_stop_on_what_is_never_a_number_says_so) {
  DataSet none = points(20);
  for (float& y : none.columns.at("y").data<float>()) y = NAN;
  std::string told;
  FitOptions options{.batch = 5, .epochs = 60, .validation = &none, .patience = 2};
  options.notice = [&](const std::string& text) { told = text; };
  Session session(line(), Single{});
  EXPECT_EQ(fit(session, points(20), options).size(), 2u);
  EXPECT_EQ(told, "val_loss was not better for 2 epochs; no epoch had one that is a number, and the variables are the last");
}

TEST(TrainingRuns, an_early_stop_leaves_the_best_epoch_behind_whenever_it_was_started_again) {
  Folder folder;
  const DataSet data = points(20), far = [] {
    DataSet d = points(20);
    for (float& y : d.columns.at("y").data<float>()) y = 0;  // the nearer the line, the further from these, after a while
    return d;
  }();
  FitOptions options{.batch = 5, .epochs = 60, .validation = &far, .checkpoints = folder.path().string(), .patience = 3};
  std::map<std::int64_t, double> losses;
  std::string told;
  options.on_epoch = [&](const Progress& p) { losses[p.epoch] = p.metrics.at("val_loss"); };
  options.notice = [&](const std::string& text) { told = text; };
  Session session(line(), Single{});
  fit(session, data, options);
  const auto best = std::min_element(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  ASSERT_LT(losses.size(), 60u);
  EXPECT_EQ(losses.rbegin()->first, best->first + 3);
  EXPECT_EQ(evaluate(session, far, options.batch).at("loss"), best->second);
  EXPECT_THAT(told, testing::HasSubstr("val_loss was not better for 3 epochs; the variables are those of epoch " + std::to_string(best->first + 1)));
  const State kept = session.state();
  EXPECT_EQ(session.data_progress.steps, 4 * (best->first + 1));
  EXPECT_EQ(session.data_progress.steps_of_run, session.data_progress.steps);

  std::filesystem::remove_all(folder.path());
  for (int start = 0; start < 2; ++start) {
    Session again(line(), Single{});
    FitOptions part = options;
    resume_latest(again, data, part);
    part.on_epoch = [&](const Progress& p) {
      if (start == 0 && p.epoch == best->first + 2) throw Stop{};
    };
    if (start == 0) {
      EXPECT_THROW(fit(again, data, part), Stop);
      continue;
    }
    fit(again, data, part);
    EXPECT_EQ(again.state(), kept);
    EXPECT_EQ(again.data_progress, session.data_progress);
  }
  Session none(line(), Single{});
  EXPECT_TRUE(says<UserError>([&] { fit(none, data, {.patience = 1, .monitor = "val_loss"}); }, {"no epoch has the metric 'val_loss'; there are loss, accuracy"}));
}

TEST(TrainingRuns, what_is_as_good_as_the_best_is_not_better) {
  const Graph graph = line();
  EarlyStop high(graph, {.patience = 2, .monitor = "accuracy"}), low(graph, {.patience = 2});
  const std::vector<Metrics> epochs = {{{"accuracy", 0.5}, {"loss", 2}}, {{"accuracy", 0.75}, {"loss", 1}}, {{"accuracy", 0.75}, {"loss", 1}}, {{"accuracy", 0.7}, {"loss", NAN}}};
  for (std::size_t k = 0; k < epochs.size(); ++k) {
    EXPECT_FALSE(high.over() || low.over());
    EXPECT_EQ(high.best(static_cast<std::int64_t>(k), epochs[k]), k < 2) << k;
    EXPECT_EQ(low.best(static_cast<std::int64_t>(k), epochs[k]), k < 2) << k;
  }
  EXPECT_TRUE(high.over() && low.over());
  // A start that goes on knows how long it has waited.
  TextMap notes;
  high.note(notes);
  EarlyStop again(graph, {.patience = 2, .monitor = "max:accuracy"});
  again.take(notes);
  EXPECT_TRUE(again.over());
  EXPECT_EQ(again.text(), "accuracy was not better for 2 epochs; the variables are those of epoch 2, with 0.75");
}

TEST(TrainingRuns, notes_of_checkpoints_have_points_whatever_the_programs_locale_has) {
  const Graph graph = line();
  const Results one(std::map<std::string, HostTensor>{{"loss", HostTensor::scalar(0.1f)}});
  auto noted = [&] {
    TextMap notes;
    RunningMeans means;
    means.add(one, {"loss"}, 3);
    means.note(notes);
    EarlyStop stop(graph, {.patience = 2});
    stop.best(0, {{"loss", 0.1}});
    stop.note(notes);
    return notes;
  };
  const TextMap notes = noted();
  const CommaLocale comma;
  if (!comma) GTEST_SKIP() << "there is no locale with a decimal comma here, and localedef makes none";
  EXPECT_EQ(noted(), notes);
  RunningMeans means;
  means.take(notes);
  EXPECT_EQ(means.means().at("loss"), static_cast<double>(0.1f));
  EarlyStop stop(graph, {.patience = 2});
  stop.take(notes);
  EXPECT_EQ(stop.text(), "the best loss: the variables are those of epoch 1, with 0.1");
}

/// A source that is slow, and a reader that is not: the thread makes the same batches, and an error of it is the reader's.
TEST(TrainingRuns, batches_that_are_made_ahead_are_those_that_are_asked_for) {
  std::int64_t made = 0;
  Input input({0, 0}, [&](Input::Columns& out) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (made == 100) throw UserError("the file is gone");
    out.insert_or_assign("n", HostTensor::scalar(made));
    return DataPosition{0, ++made};
  });
  for (std::int64_t k = 0; k < 100; ++k) {
    const Input::Columns& now = input.next();
    EXPECT_EQ(now.at("n").item<std::int64_t>(), k);
    EXPECT_EQ(input.position().position, k + 1);
    if (k % 3 == 0 || k == 98) continue;
    const Input::Columns& ahead = input.ahead();
    EXPECT_EQ(ahead.at("n").item<std::int64_t>(), k + 1);
    EXPECT_EQ(&input.ahead(), &ahead);
    EXPECT_EQ(input.position().position, k + 1);
    EXPECT_EQ(now.at("n").item<std::int64_t>(), k) << "was written over";
    const HostTensor* at = &ahead.at("n");
    EXPECT_EQ(&input.next().at("n"), at) << "who was told of the batch ahead has its tensors' addresses";
    EXPECT_EQ(input.position().position, ++k + 1);
  }
  EXPECT_GE(input.depth(), 2);
  EXPECT_TRUE(says<UserError>([&] { input.next(); }, {"the file is gone"}));
  Input quick({0, 0}, [](Input::Columns&) { return DataPosition{}; });
  for (int k = 0; k < 20; ++k) {
    quick.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(quick.depth(), 0);
}

TEST(RunFolder, of_another_run_is_refused_or_replaced) {
  Folder folder;
  const std::filesystem::path run = folder / "run";
  auto scores = [](int classes) {
    Builder b("scores");
    b.output("scores", nn::dense(b.input("x", f32, {kBatch, 2}), {.units = classes}));
    return Session(std::move(b).build());
  };
  Session two = scores(2), three = scores(3);
  EXPECT_TRUE(says([&] { write_run_folder(run, two, {.classes = {"a", "b", "c"}}); }, {"3 names of classes, but no output has a value for each: 'scores' is f32(batch, 2)"}));
  write_run_folder(run, two, {.classes = {"a", "b"}});
  write_file(run / "log.jsonl", "{}\n");
  write_run_folder(run, two);  // its own run, with a log of its own
  EXPECT_TRUE(std::filesystem::exists(run / "log.jsonl"));
  EXPECT_TRUE(says([&] { write_run_folder(run, three); }, {"run: a run of another graph is there: name another folder, or replace it with .overwrite = true"}));
  EXPECT_EQ(read_run_folder(run).weights, two.weights());
  write_file(run / "plan.json", "{}");
  write_run_folder(run, three, {.overwrite = true});
  EXPECT_EQ(read_run_folder(run).weights, three.weights());
  for (const char* part : {"log.jsonl", "plan.json"}) EXPECT_FALSE(std::filesystem::exists(run / part)) << part;
  // A folder that is no run's keeps what else lies there.
  const std::filesystem::path work = folder / "work";
  std::filesystem::create_directory(work);
  write_file(work / "graph.json", "{}");
  write_file(work / "plan.json", "{}");
  write_run_folder(work, three, {.overwrite = true});
  EXPECT_TRUE(std::filesystem::exists(work / "plan.json"));
  // What belfry train wrote names its strategy.
  write_run_folder(run, three, {.settings = {{"strategy", "\"single\""}}});
  write_file(run / "log.jsonl", "{}\n");
  EXPECT_TRUE(says([&] { write_run_folder(run, three); }, {"a run of belfry train is there"}));
}

TEST(RunFolder, gives_back_what_a_program_wrote_and_serves_it) {
  Folder folder;
  const std::filesystem::path run = folder.path() / "runs/a";
  const DataSet data = points(20);
  Session session(line());
  fit(session, data, {.batch = 5});
  const Pixels pixels{.rescale = {1.0 / 255, 0.5}, .antialias = true, .resized = 32};
  write_run_folder(run, session, {.classes = {"low", "\"high\""}, .pixels = pixels, .data = "points", .rescale = "1/255", .hold_out = 0.25, .settings = {{"batch", "5"}}});
  const RunFacts facts = read_run_facts(run);
  EXPECT_TRUE(facts.ended && !facts.averages);
  EXPECT_EQ(std::tuple(facts.net, facts.data, facts.rescale, facts.hold_out), std::tuple("line", "points", "1/255", 0.25));
  const RunFolder read = read_run_folder(run);
  EXPECT_EQ(read.classes, (std::vector<std::string>{"low", "\"high\""}));
  EXPECT_EQ(std::tuple(read.pixels->rescale.scale, read.pixels->rescale.offset, read.pixels->antialias, read.pixels->resized), std::tuple(1.0 / 255, 0.5, true, 32));
  EXPECT_EQ(read.weights, session.weights());
  EXPECT_FALSE(read.graph.train);

  EXPECT_TRUE(says([&] { write_run_folder(folder / "b", session, {.settings = {{"batch", "{"}}}); }, {"run.json:3: /batch"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));

  // While another training goes on there, neither its weights nor those of the one before serve; then its checkpoint does.
  write_run_folder(run, session, {.checkpoints = "../ck", .ended = false});
  EXPECT_FALSE(find_run_state(run));
  EXPECT_TRUE(says([&] { read_run_folder(run); }, {"its training has not ended", "state.safetensors is of a training before it"}));
  EXPECT_EQ(read_run_folder(run, *standard_library(), run / "state.safetensors").weights, session.weights());
  fit(session, data, {.batch = 5, .checkpoints = (folder.path() / "runs/ck").string()});
  EXPECT_EQ(run_state(run).filename(), "step-00000008.safetensors");
  EXPECT_EQ(read_run_folder(run).weights, session.weights());
  EXPECT_TRUE(says([&] { read_run_facts(folder.path()); }, {"no folder of a run: it has no run.json"}));
  const std::vector<std::pair<const char*, const char*>> broken = {{"[]", "must be an object"}, {R"({"classes": "low"})", "/classes"}, {R"({"classes": [3]})", "/classes/0"},
                                                                   {R"({"hold_out": "a"})", "/hold_out"}, {R"({"pixels": {"size": 3}})", "size"}, {R"({"state": "/etc/x"})", "/state"}};
  for (const auto& [text, words] : broken) {
    write_file(run / "run.json", text);
    EXPECT_TRUE(says([&] { read_run_facts(run); }, {"run.json", words})) << text;
  }
}

}  // namespace
}  // namespace belfry::test
