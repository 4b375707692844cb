#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>

#include <belfry/belfry.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/json/strict_json.h>
#include <belfry/frontends/nn/nets/nets.h>

#include "made_rows.h"
#include "nets.h"
#include "no_threads.h"
#include "says.h"

namespace belfry::test {
namespace {

/// Rows that suit the net "dropout": a class per row, seen through noise.
DataSet rows(std::int64_t count) {
  Builder b("dropout");
  net("dropout").build(b, f32);
  DataSet out;
  out.columns = feeds_for(b.graph(), count, 3);
  return out;
}

Graph dropout() {
  Builder b("dropout");
  net("dropout").build(b, f32);
  b.graph().metrics.erase("dropped");  // of many numbers
  return std::move(b).build();
}

/// Those of the first column of floats.
void make_floats(DataSet& data, const std::function<void(std::int64_t)>& look) {
  make_rows(data, std::find_if(data.columns.begin(), data.columns.end(), [](const auto& c) { return c.second.dtype() == f32; })->first, look);
}

TEST(Fit, made_columns_give_the_stored_ones_bits_and_a_row_that_fails_ends_training_with_its_words) {
  const DataSet data = rows(20);
  const FitOptions options{.batch = 2, .epochs = 2, .shuffle = 3};
  Session stored(dropout(), Single{}), made(dropout(), Single{}), failing(dropout(), Single{});
  fit(stored, data, options);
  DataSet other = data;
  make_floats(other, [](std::int64_t) {});
  fit(made, other, options);
  EXPECT_EQ(made.state(), stored.state());
  EXPECT_EQ(evaluate(made, other), evaluate(stored, data));
  other = data;
  make_floats(other, [](std::int64_t row) {
    if (row == 7) throw UserError("row 7 is damaged");
  });
  EXPECT_EQ(message_of([&] { fit(failing, other, options); }), "row 7 is damaged");
}

void slowly(std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

/// Input that is slow has a thread of its own, where there is one to be had.
TEST(Fit, reads_slow_input_itself_where_no_thread_starts) {
  DataSet data = rows(20);
  Session with(dropout(), Single{.threads = 1}), without(dropout(), Single{.threads = 1});
  fit(with, data, {.batch = 2});
  make_floats(data, slowly);
  without.prepare({2});
  const NoThreads none;
  fit(without, data, {.batch = 2});
  EXPECT_EQ(without.state(), with.state());
}

TEST(Fit, says_so_where_the_input_limits) {
  DataSet data = rows(26);
  make_floats(data, slowly);
  std::string said;
  Session session(dropout(), Single{});
  fit(session, data, {.batch = 2, .notice = [&](const std::string& text) { said += text; }});
  EXPECT_NE(said.find("the input limits: "), std::string::npos) << said;
}

TEST(Fit, resumed_from_a_checkpoint_on_other_devices_gives_the_same_bits) {
  DataSet data = rows(50);
  FitOptions options{.batch = 8, .epochs = 3, .shuffle = 11};
  Session whole(dropout(), Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = 2, .threads = 1}, {.seed = 5});
  fit(whole, data, options);
  EXPECT_EQ(whole.variable("step").item<std::int64_t>(), 21);

  std::string file = testing::TempDir() + "belfry_fit_test.safetensors";
  {
    Session first(dropout(), Towers{.devices = parse_devices("cpu:0"), .towers = 2, .threads = 1}, {.seed = 5});
    FitOptions part = options;
    struct Stop {};
    int steps = 0;
    part.on_batch = [&](const Progress&) {
      if (++steps == 10) throw Stop{};  // in the middle of the second epoch
    };
    EXPECT_THROW(fit(first, data, part), Stop);
    Checkpoint::of(first).save(file);
  }
  Session second(dropout(), Mirrored{.devices = parse_devices("sim:0-1"), .towers = 2, .threads = 1}, {.seed = 99});
  Checkpoint::load(file).restore(second);
  options.resumed = true;
  fit(second, data, options);
  EXPECT_EQ(second.state(), whole.state());
  EXPECT_TRUE(fit(second, data, options).empty());  // the run has its epochs
  std::filesystem::remove(file);
}

TEST(Fit, epochs_and_steps_count_from_where_the_session_stands) {
  DataSet data = rows(10);
  Session session(dropout(), Single{}, {.seed = 5});
  auto steps = [&](const FitOptions& options) {
    std::int64_t before = session.variable("step").item<std::int64_t>();
    fit(session, data, options);
    return session.variable("step").item<std::int64_t>() - before;
  };
  EXPECT_EQ(steps({.batch = 5, .epochs = 2}), 4);
  std::vector<std::int64_t> seen;
  EXPECT_EQ(steps({.batch = 5, .epochs = 2, .on_epoch = [&](const Progress& p) { seen.push_back(p.epoch), seen.push_back(p.epochs); }}), 4);
  EXPECT_THAT(seen, testing::ElementsAre(2, 4, 3, 4));
  EXPECT_EQ(steps({.batch = 5, .epochs = 2, .resumed = true}), 0);
  // Another batch size may leave more batches in the epoch than a whole one has.
  EXPECT_EQ(steps({.batch = 1, .steps = 1}), 1);
  seen.clear();
  EXPECT_EQ(steps({.batch = 3, .steps = 4, .on_epoch = [&](const Progress& p) { seen.push_back(p.epochs); }}), 4);
  EXPECT_THAT(seen, testing::ElementsAre(6, 6));
  EXPECT_EQ(session.data_progress, (Session::DataProgress{5, 3, 13, 13}));
  EXPECT_EQ(steps({.batch = 4}), 2);  // what is left of the epoch that was begun
  // 12 rows from the start of an epoch: the last batch runs on into the next.
  seen.clear();
  EXPECT_EQ(steps({.batch = 4, .steps = 3, .last_batch = LastBatch::runs_on, .on_epoch = [&](const Progress& p) { seen.push_back(p.rows), seen.push_back(p.epochs); }}), 3);
  EXPECT_THAT(seen, testing::ElementsAre(12, 7));
  EXPECT_EQ(session.data_progress, (Session::DataProgress{7, 2, 18, 18}));
}

/// The lines of a log, as objects.
std::vector<JsonDocument> lines_of(const std::string& file) {
  std::vector<JsonDocument> out;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);) out.emplace_back(line, file);
  return out;
}

TEST(Fit, logs_each_step_and_goes_on_in_the_log_after_a_checkpoint) {
  DataSet data = rows(50);
  const std::string log = testing::TempDir() + "belfry_fit_test.jsonl";
  Builder b("logged");
  net("dropout").build(b, f32);
  b.graph().metrics.erase("dropped");
  Graph graph = std::move(b).build();
  graph.train = TrainSpec{graph.train->losses, "sgd", {}, {}, {{"kind", "exponential_decay"}, {"rate", 0.5}, {"steps", std::int64_t{4}}, {"factor", 0.5}, {"staircase", true}}};
  const std::string loss = graph.name_of(graph.train->losses[0]);
  std::vector<double> losses;
  auto trained = [&](std::int64_t steps, Session& session) {
    fit(session, data, {.batch = 8, .steps = steps, .validation = &data, .on_batch = [&](const Progress& p) { losses.push_back(p.last.at(loss)); }, .log = log});
  };
  Session session(graph, Single{});
  trained(9, session);
  Checkpoint half = Checkpoint::of(session);
  Session second(graph, Single{});
  half.restore(second);
  trained(3, second);
  std::vector<JsonDocument> lines = lines_of(log);
  ASSERT_EQ(lines.size(), 14u);  // 7 steps and an epoch, 2, 3 and what there is of the second by then
  std::int64_t steps = 0;
  for (const JsonDocument& line : lines) {
    JsonObject object(line, line.root());
    auto at = [&](const std::string& key) -> const JsonValue& { return object.at(key); };
    if (!line.root().find("step")) {
      EXPECT_NE(line.root().find("val_" + loss), nullptr);
      continue;
    }
    EXPECT_EQ(line.real(at(loss)), losses[static_cast<std::size_t>(steps)]);
    EXPECT_FLOAT_EQ(static_cast<float>(line.real(at("learning_rate"))), std::ldexp(0.5f, -static_cast<int>(steps / 4)));
    EXPECT_EQ(line.integer(at("step")), ++steps);
    EXPECT_EQ(line.integer(at("epoch")), steps <= 7 ? 1 : 2);
    EXPECT_EQ(line.integer(at("rows")), steps == 7 ? 2 : 8);
  }
  EXPECT_EQ(steps, 12);
  EXPECT_EQ(second.data_progress, (Session::DataProgress{1, 40, 12, 12}));
  std::string told;
  Session third(graph, Single{});
  half.restore(third);
  fit(third, data, {.batch = 8, .steps = 1, .notice = [&](const std::string& text) { told += text; }, .log = log});
  EXPECT_EQ(told.find("lacks"), std::string::npos) << told;
  const std::string before = read_file(log);
  write_file(log, before.substr(0, before.find('\n') + 1));
  Session lacking(graph, Single{});
  half.restore(lacking);
  fit(lacking, data, {.batch = 8, .steps = 1, .notice = [&](const std::string& text) { told += text; }, .log = log});
  EXPECT_NE(told.find(log + ": lacks the steps 2 to 9"), std::string::npos) << told;
  // The log of a training before stays until on_batch has been told of the first step.
  write_file(log, before);
  Session anew(graph, Single{});
  fit(anew, data, {.batch = 8, .steps = 1, .on_batch = [&](const Progress&) { EXPECT_EQ(read_file(log), before); }, .log = log});
  EXPECT_EQ(lines_of(log).size(), 2u);
  EXPECT_THROW(fit(anew, data, {.log = testing::TempDir() + "no/such/folder/log"}), UserError);
  std::filesystem::remove(log);
}

TEST(Fit, means_are_weighted_by_rows) {
  DataSet data = rows(10);
  Session session(dropout());
  Metrics by_sevens = evaluate(session, data, 7), at_once = evaluate(session, data, 10);
  // Identity outside training, so the mean of 7 and 3 rows is that of 10.
  EXPECT_NEAR(by_sevens.begin()->second, at_once.begin()->second, 1e-6);
}

/// Weights of 1, 0, 0, 0 and then 5, 5: a mean by rows of the batches' means would be another.
TEST(Fit, metrics_of_a_numerator_and_a_denominator_are_exact_over_uneven_batches) {
  Builder b("weighted");
  Value x = b.input("x", f32, {kBatch}), w = b.input("w", f32, {kBatch});
  b.metric("mean", reduce_sum(x * w), reduce_sum(w));
  b.metric("plain/weight", mean(x));  // weighs nothing
  EXPECT_THROW(b.metric("rows", x, w), UserError);
  b.minimize(identity(mean(x * b.variable("v", {})), "loss"), Sgd{});
  DataSet data;
  data.columns.emplace("x", HostTensor::of<float>({10}, {1, 7, 7, 7, 2, 3, 7, 7, 7, 7}));
  data.columns.emplace("w", HostTensor::of<float>({10}, {1, 0, 0, 0, 5, 5, 0, 0, 0, 0}));
  Session session(std::move(b).build(), Towers{.devices = parse_devices("cpu:0,cpu:1")});
  Metrics got = evaluate(session, data, 4);
  EXPECT_EQ(got.at("mean"), 26.0 / 11);
  EXPECT_FALSE(got.contains("mean/weight"));
  EXPECT_TRUE(got.contains("plain/weight"));
  EXPECT_EQ(evaluate(session, {&data, &data}, 3).at("mean"), 26.0 / 11);
  EXPECT_EQ(fit(session, data, {.batch = 4})[0].metrics.at("mean"), 26.0 / 11);
}

TEST(Fit, a_metric_whose_denominator_is_0_in_all_batches_is_0) {
  Builder b("weighted");
  Value x = b.input("x", f32, {kBatch}), w = b.input("w", f32, {kBatch});
  b.metric("mean", reduce_sum(x * w), reduce_sum(w));
  b.minimize(identity(mean(x * b.variable("v", {})), "loss"), Sgd{});
  DataSet data;
  data.columns.emplace("x", HostTensor::of<float>({5}, {1, 7, 7, 7, 2}));
  data.columns.emplace("w", HostTensor(f32, {5}));
  Session session(std::move(b).build());
  EXPECT_EQ(evaluate(session, data, 2).at("mean"), 0);
  EXPECT_EQ(fit(session, data, {.batch = 2})[0].metrics.at("mean"), 0);
}

/// By the name of its op it would be "add".
TEST(Fit, reports_the_only_loss_as_loss_where_it_has_no_name_of_its_own) {
  auto names = [](int losses, const std::string& name) {
    Builder b("named");
    Value x = b.input("x", f32, {kBatch}), v = b.variable("v", {});
    for (int k = 0; k < losses; ++k) {
      Value loss = mean(x * v) + 1.0;
      if (!name.empty()) loss = identity(loss, name);
      b.minimize(loss, Sgd{});
    }
    DataSet data;
    data.columns.emplace("x", HostTensor::of<float>({2}, {1, 3}));
    Session session(std::move(b).build());
    std::vector<std::string> out;
    const History history = fit(session, data, {.batch = 2, .validation = &data});
    for (const auto& [key, value] : history[0].metrics) out.push_back(key);
    for (const auto& [key, value] : evaluate(session, data)) EXPECT_EQ(value, session.run(Batch(data.columns), {key}).item<float>(key)) << key;
    return out;
  };
  EXPECT_THAT(names(1, ""), testing::ElementsAre("loss", "val_loss"));
  EXPECT_THAT(names(1, "cost"), testing::ElementsAre("cost", "val_cost"));
  EXPECT_THAT(names(2, ""), testing::ElementsAre("add", "add_1", "val_add", "val_add_1"));
}

/// A vector would be shown nowhere, and a loss not where another value has its name.
TEST(Fit, refuses_metrics_that_are_no_scalars_or_hide_a_loss) {
  DataSet data;
  data.columns.emplace("x", HostTensor::of<float>({2}, {1, 3}));
  auto trained = [&](const std::string& loss_name, const std::string& metric, const std::function<Value(Value x, Value loss)>& value, bool from_file) {
    Builder b("named");
    Value x = b.input("x", f32, {kBatch}), loss = mean(x * b.variable("v", {})) + 1.0;
    if (!loss_name.empty()) loss = identity(loss, loss_name);
    b.metric(metric, value(x, loss));
    b.minimize(loss, Sgd{});
    Graph graph = std::move(b).build();
    if (from_file) graph = read_graph(write_graph(graph), "named.json", graph.shared_ops());
    Session session(std::move(graph));
    std::string fitted = message_of([&] { fit(session, data, {.patience = 1}); });
    EXPECT_EQ(message_of([&] { evaluate(session, data); }), fitted);
    return fitted;
  };
  auto other = [](Value x, Value) { return mean(x); };
  auto same = [](Value, Value loss) { return loss; };
  for (bool from_file : {false, true}) {
    EXPECT_THAT(trained("", "rows of x", [](Value x, Value) { return x * 2; }, from_file), testing::HasSubstr("a metric is a scalar, but 'rows of x' of the graph 'named' is f32(batch); take its mean, or make it an output"));
    EXPECT_THAT(trained("", "loss", other, from_file), testing::HasSubstr("the metric 'loss' of the graph 'named' is 'reduce_mean_1', and would hide the loss 'add', which is shown as 'loss'; give the metric another name"));
    EXPECT_THAT(trained("cost", "cost", other, from_file), testing::HasSubstr("would hide the loss 'cost'"));
    EXPECT_EQ(trained("cost", "loss", other, from_file), "(no error)");
    EXPECT_EQ(trained("", "loss", same, from_file), "(no error)");
    EXPECT_EQ(trained("loss", "loss", same, from_file), "(no error)");
  }
  Builder b("twice");
  Value x = b.input("x", f32, {kBatch});
  b.metric("mean", mean(x));
  EXPECT_TRUE(says([&] { b.metric("mean", reduce_sum(x)); }, {"[metric] 'reduce_mean' is the metric 'mean' already: give 'reduce_sum' another name"}));
  b.metric("part/weight", mean(x));
  EXPECT_TRUE(says([&] { b.metric("part", reduce_sum(x), reduce_sum(x)); }, {"'part/weight' is a metric already"}));
}

/// A plan that fetches nothing for it, unless a log or the caller reads it.
TEST(Fit, fetches_the_learning_rate_only_where_something_reads_it) {
  Session session(dropout());
  auto has = [](const std::vector<std::string>& names) { return std::find(names.begin(), names.end(), "learning_rate") != names.end(); };
  EXPECT_FALSE(has(fit_fetches(session)));
  EXPECT_TRUE(has(fit_fetches(session, {.log = "log"})));
  std::vector<bool> seen;
  for (bool wanted : {false, true}) fit(session, rows(8), {.batch = 8, .on_batch = [&](const Progress& p) { seen.push_back(p.learning_rate.has_value()); }, .learning_rate = wanted});
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
}

TEST(Fit, missing_columns_and_a_loss_that_is_no_number_are_said) {
  DataSet data = rows(8);
  Session session(dropout());
  DataSet without = data;
  without.columns.erase("label");
  try {
    fit(session, without);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("no column for the input 'label'"));
  }
  data.columns.at("x").data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  try {
    fit(session, data);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("lower the learning rate"));
  }
}

TEST(Fit, a_step_that_fails_behind_its_updates_is_not_repeated) {
  Builder b("late");
  Value w = b.variable("w", {}, {.init = "zeros"}), sum = w + reduce_sum(b.input("x", f32, {kBatch}));
  Value late = exp(sum);
  b.update(w, sum);
  b.metric("late", late);
  Graph graph = std::move(b).build();
  graph.losses = {late.id};
  auto library = std::make_shared<Library>(*standard_library());
  KernelTable table;
  auto countdown = std::make_shared<int>(2);
  table.add({"failing_exp", "exp", [](const KernelRequest&) { return Support{}; },
             [countdown](const KernelRequest& r) {
               std::shared_ptr<Prepared> real = KernelTable{}.prepare(kReferenceKernel, r);
               return prepared([real, countdown](const Arguments& a) {
                 if (--*countdown == 0) throw DeviceError("the device is lost");
                 real->launch(a);
               });
             }});
  library->kernels["cpu"] = table;
  Session session(graph, Single{}, {.library = library});
  DataSet data;
  data.columns.insert_or_assign("x", HostTensor(f32, {8}));
  for (float& x : data.columns.at("x").data<float>()) x = 1;
  EXPECT_THROW(fit(session, data, {.batch = 2}), DeviceError);
  EXPECT_EQ(session.state_after(), StateAfter::complete);
  EXPECT_EQ(session.data_progress, (Session::DataProgress{0, 4, 2, 2}));
  fit(session, data, {.batch = 2});
  EXPECT_EQ(session.variable("w").item<float>(), 8);  // every row once
}

}  // namespace
}  // namespace belfry::test
