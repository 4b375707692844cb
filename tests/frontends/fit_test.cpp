#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>

#include "nets.h"

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
  return std::move(b).build();
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
  fit(second, data, options);
  EXPECT_EQ(second.state(), whole.state());
  std::filesystem::remove(file);
}

TEST(Fit, means_are_weighted_by_rows) {
  DataSet data = rows(10);
  Session session(dropout());
  Metrics by_sevens = evaluate(session, data, 7), at_once = evaluate(session, data, 10);
  // Identity outside training, so the mean of 7 and 3 rows is that of 10.
  EXPECT_NEAR(by_sevens.begin()->second, at_once.begin()->second, 1e-6);
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
  EXPECT_EQ(session.data_progress, (Session::DataProgress{0, 4}));
  fit(session, data, {.batch = 2});
  EXPECT_EQ(session.variable("w").item<float>(), 8);  // every row once
}

}  // namespace
}  // namespace belfry::test
