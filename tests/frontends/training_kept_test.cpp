#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <belfry/belfry.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/strict_json.h>

#include "files.h"
#include "line.h"
#include "says.h"

namespace belfry::test {
namespace {

TEST(TrainingKept, what_is_validated_is_looked_at_before_the_first_step_and_costs_no_epoch_where_it_fails) {
  const DataSet data = points(16);
  Session session(line(), Single{});
  auto refused = [&](DataSet held_out, const std::string& words) {
    EXPECT_TRUE(says<UserError>([&] { fit(session, data, {.batch = 8, .validation = &held_out}); }, {"the data to validate on: ", words}));
    EXPECT_EQ(steps_of(session), 0);
  };
  DataSet other = points(8);
  other.columns.erase("y");
  refused(other, "no column for the input 'y'");
  other.columns.insert_or_assign("y", HostTensor(i32, {8}));
  refused(other, "the feed 'y' is i32");
  refused({}, "no column");

  Folder folder;
  DataSet damaged = points(20);
  damaged.columns.erase("x");
  damaged.made["x"] = {LocalType{f32, {}}, "made", [](const RowKey& key, std::span<std::byte> out) {
                         if (key.row == 9) throw UserError("row 9 is damaged");
                         std::fill(out.begin(), out.end(), std::byte{0});
                       }};
  EXPECT_TRUE(says<UserError>([&] { fit(session, data, {.batch = 8, .epochs = 2, .validation = &damaged, .checkpoints = folder.path().string()}); }, {"row 9 is damaged"}));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"step-00000002.safetensors"}));
}

TEST(TrainingKept, validation_takes_no_more_rows_at_a_time_than_training) {
  const DataSet data = points(64);
  Builder b("counted");
  Value x = b.input("x", f32, {kBatch}), y = b.input("y", f32, {kBatch});
  b.metric("at_once", reduce_sum(x * 0.0 + 1.0));
  b.minimize(identity(mean((x - y) * b.variable("v", {})), "loss"), Sgd{});
  Session session(std::move(b).build(), Single{});
  EXPECT_EQ(fit(session, data, {.batch = 8, .validation = &data})[0].metrics.at("val_at_once"), 8);
}

TEST(TrainingKept, an_epoch_whose_callback_throws_is_in_a_checkpoint) {
  Folder folder;
  const DataSet data = points(16);
  Session session(line(), Single{});
  EXPECT_THROW(fit(session, data, {.batch = 8, .epochs = 3, .on_epoch = [](const Progress& p) { if (p.epoch == 1) throw Stop{}; }, .checkpoints = folder.path().string()}), Stop);
  EXPECT_THAT(folder.names(), testing::UnorderedElementsAre("step-00000002.safetensors", "step-00000004.safetensors"));
}

/// The gate is closed where x is small: such a step changes nothing, its counter too.
TEST(TrainingKept, steps_that_a_gate_closed_are_steps_of_the_run) {
  Folder folder;
  const DataSet data = points(40);
  auto gated = [] {
    Builder b("gated");
    Value x = b.input("x", f32, {kBatch}), y = b.input("y", f32, {kBatch});
    b.minimize(identity(mean(square(x * b.variable("slope", {}) - y)), "loss"), Adam{.learning_rate = 0.05});
    b.gate(less(constant_like(mean(x), 0.4), mean(x)));
    return std::move(b).build();
  };
  FitOptions options{.batch = 4, .steps = 24, .log = (folder / "whole.jsonl").string()};
  Session whole(gated(), Single{});
  fit(whole, data, options);
  EXPECT_LT(whole.variable("step").item<std::int64_t>(), 20);
  EXPECT_EQ(steps_of(whole), 24);

  options.checkpoints = (folder / "ck").string();
  options.checkpoint_every = 5;
  options.log = (folder / "parts.jsonl").string();
  for (std::int64_t steps : {7, 16, 24}) {
    Session part(gated(), Single{});
    options.steps = steps;
    resume_latest(part, data, options);
    fit(part, data, options);
    EXPECT_EQ(steps_of(part), steps);
    if (steps == 24) {
      EXPECT_EQ(part.state(), whole.state());
    }
  }
  auto lines = [&](const char* name) {
    const std::string text = read_file(folder / name);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines("parts.jsonl"), lines("whole.jsonl"));
  EXPECT_EQ(latest_checkpoint_step(folder / "ck"), 24);
}

TEST(TrainingKept, what_a_checkpoint_notes_is_of_the_training_that_goes_on_from_it_alone) {
  Folder folder;
  const DataSet data = points(40);
  FitOptions options{.batch = 4, .steps = 15, .checkpoints = folder.path().string()};
  Session begun(line(), Single{}), session(line(), Single{}), whole(line(), Single{});
  fit(begun, data, options);
  options.steps = 0;
  options.epochs = 3;
  resume_latest(session, data, options);
  fit(session, data, options);
  options.epochs = 4;
  const History further = fit(session, data, options), expected = fit(whole, data, {.batch = 4, .epochs = 4});
  ASSERT_EQ(further.size(), 1);
  EXPECT_EQ(further[0].metrics, expected[3].metrics);
}

TEST(TrainingKept, options_below_their_least_and_names_that_the_log_has_are_refused_before_the_first_step) {
  Folder folder;
  const DataSet data = points(16);
  Session session(line(), Single{});
  for (const auto& [options, words] : {std::pair(FitOptions{.steps = -5}, "steps is -5; 0 is the least"), {FitOptions{.epochs = -3}, "epochs is -3"},
                                       {FitOptions{.checkpoint_every = -3}, "checkpoint_every is -3"}, {FitOptions{.keep = 0}, "keep is 0; 1 is the least"}})
    EXPECT_TRUE(says<UserError>([&, &options = options] { fit(session, data, options); }, {words}));
  EXPECT_EQ(steps_of(session), 0);
  EXPECT_TRUE(says<UserError>([&] { fit(session, data, {.log = std::string(300, 'l')}); }, {"the log cannot be opened for writing: File name too long; name another file for it"}));

  const std::string log = (folder / "log").string();
  Builder b("rows");
  Value x = b.input("x", f32, {kBatch});
  b.metric("rows", mean(x));
  b.minimize(identity(mean(x * b.variable("v", {})), "loss"), Sgd{});
  Session named(std::move(b).build(), Single{});
  EXPECT_TRUE(says<UserError>([&] { fit(named, data, {.log = log}); }, {"the metric 'rows' of the graph", "give it another name, or train without a log"}));
  EXPECT_TRUE(folder.names().empty());
  DataSet of_x = data;
  of_x.columns.erase("y");
  fit(named, of_x);

  write_file(log, "{\n  \"belfry\": 1\n}\n");
  EXPECT_TRUE(says<UserError>([&] { fit(session, data, {.log = log}); }, {"is no log of a training, and would be lost; name another file"}));
  EXPECT_EQ(read_file(log), "{\n  \"belfry\": 1\n}\n");
  for (const char* cut : {"", "{\"st", "{\"epoch\": 3"}) {
    write_file(log, cut);
    fit(session, data, {.log = log});
  }
}

/// 7 steps an epoch, and 10 of them: what there is of the second epoch is neither judged nor left in the log when it goes on.
TEST(TrainingKept, one_that_is_made_longer_is_the_run_that_was_left_alone) {
  Folder folder;
  const DataSet data = points(50), far = [] {
    DataSet d = points(20);
    for (float& y : d.columns.at("y").data<float>()) y = 0;
    return d;
  }();
  auto trained = [&](const std::string& name, const std::vector<std::int64_t>& steps) {
    State state;
    for (std::int64_t n : steps) {
      Session session(line(), Single{});
      FitOptions options{.batch = 8, .steps = n, .validation = &far, .checkpoints = (folder / name).string(), .patience = 2, .log = (folder / (name + ".jsonl")).string()};
      resume_latest(session, data, options);
      fit(session, data, options);
      state = session.state();
    }
    return state;
  };
  auto lines = [&](const std::string& name) {
    const std::string text = read_file(folder / (name + ".jsonl"));
    return std::count(text.begin(), text.end(), '\n');
  };
  const State whole = trained("whole", {70});
  EXPECT_EQ(trained("longer", {10, 12, 70}), whole);
  EXPECT_EQ(lines("longer"), lines("whole"));
}

TEST(TrainingKept, the_best_epoch_of_another_run_goes_with_the_first_step) {
  Folder folder;
  const DataSet data = points(16);
  FitOptions options{.batch = 8, .epochs = 2, .checkpoints = folder.path().string(), .patience = 1};
  auto begun_anew = [&] {
    for (const std::string& name : folder.names())
      if (name.starts_with("step-")) std::filesystem::remove(folder / name);
    Session session(line(), Single{});
    fit(session, data, options);
  };
  begun_anew();
  EXPECT_TRUE(std::filesystem::exists(best_checkpoint(folder.path())));
  options.on_batch = [&](const Progress&) {
    EXPECT_FALSE(std::filesystem::exists(best_checkpoint(folder.path())));
    throw Stop{};
  };
  EXPECT_THROW(begun_anew(), Stop);
  options.on_batch = {};
  begun_anew();
  EXPECT_TRUE(std::filesystem::exists(best_checkpoint(folder.path())));
  // The same run without patience has no best epoch.
  options.patience = 0, options.epochs = 3;
  Session session(line(), Single{});
  ASSERT_TRUE(resume_latest(session, data, options));
  fit(session, data, options);
  EXPECT_FALSE(std::filesystem::exists(best_checkpoint(folder.path())));
}

/// With a rate of 0 no epoch is better than the first.
TEST(TrainingKept, the_best_epoch_of_an_earlier_start_is_read_when_training_goes_on_and_not_again) {
  Folder folder;
  const DataSet data = points(16);
  FitOptions options{.batch = 8, .epochs = 1, .checkpoints = folder.path().string(), .patience = 5};
  const std::filesystem::path best = best_checkpoint(folder.path());
  Session first(line(0), Single{}), second(line(0), Single{}), third(line(0), Single{});
  fit(first, data, options);
  ASSERT_TRUE(std::filesystem::exists(best));
  options.epochs = 3;
  ASSERT_TRUE(resume_latest(second, data, options));
  options.on_batch = [&](const Progress&) { write_file(best, "damaged"); };
  EXPECT_EQ(fit(second, data, options).size(), 2u);
  EXPECT_EQ(second.variable("slope"), first.variable("slope"));
  options.epochs = 4;
  ASSERT_TRUE(resume_latest(third, data, options));
  EXPECT_TRUE(says<UserError>([&] { fit(third, data, options); }, {best.string(), "move that file away, and the best epoch is looked for from here on"}));
}

TEST(TrainingKept, a_loss_that_has_a_name_of_the_log_is_called_a_loss) {
  Folder folder;
  auto named = [](const std::string& loss, const std::string& metric) {
    Builder b("named");
    Value value = identity(mean(square(b.input("x", f32, {kBatch}) * b.variable("w", {}))), loss);
    if (!metric.empty()) b.metric(metric, value * 2);
    b.minimize(value, Sgd{.learning_rate = 0.1});
    Graph g = std::move(b).build();
    if (loss != "loss") g.aliases.erase("loss");  // as a file has it
    return g;
  };
  const FitOptions options{.batch = 8, .epochs = 1, .log = (folder.path() / "log.jsonl").string()};
  for (const auto& [loss, metric, words] : {std::tuple("rows", "", "the loss 'rows' of the graph 'named'"), {"loss", "rows", "the metric 'rows' of the graph 'named'"}, {"loss", "learning_rate", "the metric 'learning_rate' of the graph 'named'"}}) {
    Session session(named(loss, metric), Single{});
    EXPECT_TRUE(says<UserError>([&] { fit(session, points(16), options); }, {words, "lines of the log", "give it another name"}));
  }
}

TEST(TrainingKept, a_metric_that_would_be_drawn_as_another_is_refused) {
  Folder folder;
  auto trained = [&](const std::string& metric, const FitOptions& options) {
    Builder b("named");
    const Value value = identity(mean(square(b.input("x", f32, {kBatch}) * b.variable("w", {}))), "loss");
    b.metric("kept", value);
    b.minimize(value, Sgd{});
    Graph g = std::move(b).build();
    g.metrics[metric] = g.metrics.extract("kept").mapped();
    Session session(std::move(g), Single{});
    return message_of([&] { fit(session, points(16), options); });
  };
  const FitOptions log{.batch = 8, .log = (folder.path() / "log.jsonl").string()}, charts{.batch = 8, .tensorboard = (folder.path() / "charts").string()};
  EXPECT_THAT(trained("rows_per_second/cpu:0", log), testing::HasSubstr("the metric 'rows_per_second/cpu:0' of the graph 'named' has the name of what lines of the log"));
  for (const char* name : {"rows_per_second/cpu:0", "learning_rate", "staleness"}) EXPECT_THAT(trained(name, charts), testing::HasSubstr("has the name of what charts in")) << name;
  EXPECT_THAT(trained("tower_0/loss", charts), testing::HasSubstr("the metric 'tower_0/loss' of the graph 'named' is drawn by TensorBoard as 'loss', which is the name of another chart; give it another name"));
  EXPECT_THAT(trained("tower_1/cpu", charts), testing::HasSubstr("is drawn by TensorBoard as 'cpu'"));
  EXPECT_EQ(trained("tower_0/loss", log), "(no error)");
  EXPECT_EQ(trained("tower_0/other", charts), "(no error)");
  EXPECT_THAT(trained("", {.batch = 8}), testing::HasSubstr("has no name: give it one"));
}

TEST(TrainingKept, what_is_removed_while_training_is_made_anew_and_said) {
  Folder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::filesystem::create_directory(run);
  std::string told;
  FitOptions options{.batch = 8, .epochs = 4, .checkpoints = (run / "ck").string(), .log = (run / "log.jsonl").string(), .tensorboard = (run / "charts").string()};
  options.notice = [&](const std::string& text) { told += text + "\n"; };
  options.on_batch = [&](const Progress& p) {
    if (p.step == 3) std::filesystem::remove_all(run);
  };
  Session session(line(), Single{}), whole(line(), Single{});
  fit(session, points(16), options);
  fit(whole, points(16), {.batch = 8, .epochs = 4});
  for (const char* words : {"log.jsonl: the log was removed while training", ": the event file was removed while training", "ck: the folder of the checkpoints was removed while training, and is made anew"})
    EXPECT_THAT(told, testing::HasSubstr(words));
  EXPECT_EQ(told.find("the log was removed"), told.rfind("the log was removed"));
  EXPECT_THAT(text_of(run / "log.jsonl"), testing::StartsWith("{\"step\": 4, "));
  EXPECT_FALSE(std::filesystem::is_empty(run / "charts" / "train"));
  EXPECT_EQ(session.state(), whole.state());
  Session again(line(), Single{});
  EXPECT_TRUE(resume_latest(again, points(16), options));
  EXPECT_EQ(again.state(), whole.state());
  // Another file in the log's place that is none stays.
  told.clear();
  Session third(line(), Single{});
  const FitOptions logged{.batch = 8, .on_batch = [&](const Progress&) {
    std::filesystem::remove(options.log);
    write_text(options.log, "of a year\n");
  }, .log = options.log};
  std::filesystem::remove(options.log);
  EXPECT_TRUE(says<UserError>([&] { fit(third, points(16), logged); }, {"log.jsonl: is no log of a training, and would be lost"}));
}

TEST(TrainingKept, a_node_with_the_name_of_the_learning_rate_is_refused) {
  Builder b("rated");
  b.minimize(identity(mean(b.input("x", f32, {kBatch}) * b.variable("w", {})), "learning_rate"), Sgd{});
  const Graph g = std::move(b).build();
  EXPECT_TRUE(says<UserError>([&] { Session(g, Single{}).training_graph(); }, {"the graph 'rated' has a node 'learning_rate' (", "training_kept_test.cpp:", "give the node another name"}));
}

TEST(TrainingKept, lines_of_epochs_have_taken_fewer_names_than_a_log) {
  EXPECT_EQ(name_taken({"loss", "rows"}, LogLines::all), "rows");
  EXPECT_EQ(name_taken({"loss", "rows"}, LogLines::epochs), "");
  EXPECT_EQ(name_taken({"loss", "learning_rate"}, LogLines::all), "learning_rate");
  EXPECT_EQ(name_taken({"loss", "learning_rate"}, LogLines::epochs), "");
  for (LogLines lines : {LogLines::all, LogLines::epochs}) EXPECT_EQ(name_taken({"loss", "steps", "epoch"}, lines), "steps");
  const JsonDocument written(epoch_line({}), "an epoch's line");
  EXPECT_EQ(written.root().keys.size(), 5u);
  for (const std::string& key : written.root().keys)
    for (LogLines lines : {LogLines::all, LogLines::epochs}) EXPECT_EQ(name_taken({key}, lines), key);
}

}  // namespace
}  // namespace belfry::test
