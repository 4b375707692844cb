// The nets on MNIST as TensorFlow trains them, within the tolerances of golden/README.md.
#include "golden.h"

#include <cmath>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>

#include "ran_as_planned.h"

namespace belfry::test {
namespace {

/// Rows [first, first + n) with the image in f64: bytes by 255, rounded once.
DataSet rows_in_f64(std::int64_t first, std::int64_t n) {
  DataSet out = mnist_rows().slice(first, n);
  HostTensor image = converted(out.columns.at("image"), f64);
  for (double& x : image.data<double>()) x = std::round(x * 255) / 255;
  out.columns.insert_or_assign("image", image);
  return out;
}

/// Rule 3, for the first steps: a net trained in f64 from a file's values.
void expect_losses_in_f64(Builder b, Value loss, const Strategy& strategy, const std::string& init, std::int64_t batch, const nlohmann::json& losses, std::size_t steps) {
  ASSERT_LE(steps, losses.size());
  b.minimize(identity(loss, "loss"), Adam{});
  Session session(std::move(b).build(), strategy);
  session.load_state(in_dtype(tensors(init), f64));
  for (std::size_t t = 0; t < steps; ++t)
    EXPECT_TRUE(within(number(session.step(rows_in_f64(static_cast<std::int64_t>(t) * batch, batch).columns, {"loss"}), "loss"), losses[t], 1e-6)) << "step " << t;
}

struct DigitsInF64 {
  Builder b{"digits"};
  Value image = b.input("image", f64, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
};

// ---------------------------------------------------------------- mnist_cnn

struct CnnRun {
  std::string name, final_file;
  int towers;
  std::int64_t batch;
};

class MnistCnn : public testing::TestWithParam<CnnRun> {};

TEST_P(MnistCnn, trains_as_tensorflow_does) {
  NEED_SHARED("golden/mnist_cnn");
  const CnnRun& run = GetParam();
  nlohmann::json want = expected("mnist_cnn/expected.json"), golden = want["runs"][run.name];
  Session session(graph_of("mnist_cnn"), towers(run.towers), golden_place().options);
  session.load_state(tensors("mnist_cnn/init.safetensors"));
  session.set_trace(true);
  auto losses = golden["losses"].get<std::vector<double>>(), spread = golden["loss_spread"].get<std::vector<double>>();
  auto accuracy = golden["accuracy"].get<std::vector<double>>();
  std::vector<std::string> fetches = {"loss", "accuracy"};
  for (std::size_t t = 0; t < losses.size(); ++t) {
    DataSet batch = mnist_rows().slice(static_cast<std::int64_t>(t) * run.batch, run.batch);
    if (t == 0 && run.batch == 32) {
      Results first = session.run(batch.columns, {"loss", "gradient/conv2d/kernel", "gradient/conv2d/bias", "gradient/dense/kernel", "gradient/dense/bias"});
      EXPECT_TRUE(within(first.item<float>("loss"), losses[0], 2e-6 * losses[0]));
      expect_gradients(first, tensors("mnist_cnn/grads_step0.safetensors"));
    }
    Results r = session.step(batch.columns, fetches);
    expect_loss(r.item<float>("loss"), losses[t], spread[t], t);
    EXPECT_TRUE(within(r.item<float>("accuracy"), accuracy[t], 1e-6)) << "step " << t;
  }
  EXPECT_RAN_AS_PLANNED(session);
  State state = session.state();
  for (const auto& [name, value] : tensors("mnist_cnn/" + run.final_file)) EXPECT_TRUE(within(difference(state.at(name), value), 0, 1e-4)) << name;
}

INSTANTIATE_TEST_SUITE_P(Runs, MnistCnn,
                         testing::Values(CnnRun{"towers_1", "final.safetensors", 1, 32}, CnnRun{"towers_2", "final_towers_2.safetensors", 2, 32},
                                         CnnRun{"towers_4", "final_towers_4.safetensors", 4, 32}, CnnRun{"uneven_30_over_4", "final_uneven_30_over_4.safetensors", 4, 30}),
                         [](const auto& info) { return info.param.name; });

TEST(MnistCnn, the_probe_at_the_final_state_agrees) {
  NEED_SHARED("golden/mnist_cnn");
  nlohmann::json probe = expected("mnist_cnn/expected.json")["probe_at_final"];
  Session session(graph_of("mnist_cnn"), Towers{.devices = parse_devices("cpu:0,cpu:1")});
  TensorMap final_state = tensors("mnist_cnn/final.safetensors");
  session.load_state(final_state);
  Results r = session.run(mnist_rows().slice(0, 32).columns, {"loss", "gradient/conv2d/kernel", "gradient/conv2d/bias", "gradient/dense/kernel", "gradient/dense/bias"});
  expect_probe(r, probe);
}

TEST(MnistCnn, trains_in_f64_as_an_independent_program_does) {
  NEED_SHARED("golden/mnist_cnn");
  nlohmann::json golden = expected("mnist_cnn/expected.json")["float64"];
  for (bool uneven : {false, true}) {
    DigitsInF64 in;
    Value x = flatten(max_pool2d(nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu}), {.window = {2, 2}}));
    Value loss = mean(sparse_softmax_cross_entropy(nn::dense(x, {.units = 10}), in.label));
    expect_losses_in_f64(std::move(in.b), loss, towers(uneven ? 4 : 1), "mnist_cnn/init.safetensors", uneven ? 30 : 32, uneven ? golden["uneven_30_over_4"]["losses"] : golden["losses"], 10);
  }
}

// ---------------------------------------------------------------- mnist_two_heads

class MnistTwoHeads : public testing::TestWithParam<int> {};

TEST_P(MnistTwoHeads, trains_as_tensorflow_does) {
  NEED_SHARED("golden/mnist_two_heads");
  const int towers = GetParam();
  nlohmann::json runs = expected("mnist_two_heads/expected.json")["runs"], golden = runs["towers_" + std::to_string(towers)];
  Session session(graph_of("mnist_two_heads"), test::towers(towers), golden_place().options);
  session.load_state(tensors("mnist_two_heads/init.safetensors"));
  session.set_trace(true);
  auto series = [&](const char* name) { return golden[name].get<std::vector<double>>(); };
  auto losses = series("losses"), spread = series("loss_spread"), accuracy_1 = series("accuracy_output1"), accuracy_2 = series("accuracy_output2");
  for (std::size_t t = 0; t < losses.size(); ++t) {
    DataSet batch = mnist_rows().slice(static_cast<std::int64_t>(t) * 32, 32);
    if (t == 0) {
      TensorMap want = tensors("mnist_two_heads/grads_step0.safetensors");
      std::vector<std::string> fetches = gradient_fetches(want);
      fetches.push_back("loss");
      Results first = session.run(batch.columns, fetches);
      EXPECT_TRUE(within(first.item<float>("loss"), losses[0], 2e-6 * losses[0]));
      expect_gradients(first, want);
    }
    Results r = session.step(batch.columns, {"loss", "accuracy_1", "accuracy_2"});
    expect_loss(r.item<float>("loss"), losses[t], spread[t], t);
    if (t < 10) {
      EXPECT_TRUE(within(r.item<float>("accuracy_1"), accuracy_1[t], 1e-6)) << "step " << t;
      EXPECT_TRUE(within(r.item<float>("accuracy_2"), accuracy_2[t], 1e-6)) << "step " << t;
    }
  }
  EXPECT_RAN_AS_PLANNED(session);
  expect_norms(session.state(), golden["final"], runs["towers_" + std::to_string(3 - towers)]["final"], 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Towers, MnistTwoHeads, testing::Values(1, 2), [](const auto& info) { return std::to_string(info.param); });

Results two_heads_probe(Session session, const nlohmann::json& probe) {
  session.load_state(tensors("mnist_two_heads/final.safetensors"));
  std::vector<std::string> fetches = {"loss"};
  for (const auto& [name, gradient] : probe["grads"].items()) fetches.push_back("gradient/" + name);
  return session.run(mnist_rows().slice(0, 32).columns, fetches);
}

TEST(MnistTwoHeads, the_probe_at_the_final_state_agrees) {
  NEED_SHARED("golden/mnist_two_heads");
  nlohmann::json probe = expected("mnist_two_heads/expected.json")["probe_at_final"];
  expect_probe(two_heads_probe(by_references(graph_of("mnist_two_heads")), probe), probe);
}

/// output2/bias' gradient is what is left of terms a hundred times as large. TensorFlow from kernels moved by one unit in the last place is up to 0.84 of the tolerance away; here a
/// product of 1600 terms by oneDNN, whose error is 1.8 times that of TensorFlow's, makes it 1.26. All others are within 0.1.
TEST(MnistTwoHeads, the_probe_at_the_final_state_agrees_by_kernels) {
  NEED_SHARED("golden/mnist_two_heads");
  nlohmann::json probe = expected("mnist_two_heads/expected.json")["probe_at_final"], cancelled = probe["grads"]["output2/bias"];
  Results r = two_heads_probe(Session(graph_of("mnist_two_heads"), Single{}), probe);
  probe["grads"].erase("output2/bias");
  expect_probe(r, probe);
  expect_tensor(r["gradient/output2/bias"], cancelled, 4e-5, "output2/bias");
}

/// The file's program in f64 parts from this one behind step 8, to 2.9e-3 at step 46, and just so from TensorFlow in f32, which this one follows there to 1e-6.
TEST(MnistTwoHeads, trains_in_f64_as_an_independent_program_does) {
  NEED_SHARED("golden/mnist_two_heads");
  DigitsInF64 in;
  Value x = max_pool2d(nn::conv2d(in.image, {.filters = 32, .kernel = 3, .activation = Activation::relu}), {.window = {2, 2}});
  x = max_pool2d(nn::conv2d(x, {.filters = 64, .kernel = 3, .activation = Activation::relu}), {.window = {2, 2}});
  x = nn::dense(flatten(x), {.units = 64, .activation = Activation::relu});
  Value first = nn::dense(x, {.units = 5, .name = "output1"}), second = nn::dense(x, {.units = 2, .name = "output2"}), quotient = in.label / 5;
  Value loss = mean(sparse_softmax_cross_entropy(first, in.label - 5 * quotient)) + mean(sparse_softmax_cross_entropy(second, quotient));
  expect_losses_in_f64(std::move(in.b), loss, towers(2), "mnist_two_heads/init.safetensors", 32, expected("mnist_two_heads/expected.json")["float64"]["losses"], 9);
}


// ---------------------------------------------------------------- towers_by_hand

struct HandRun {
  std::string name;
  int towers;
  Combine combine;
};

Graph one_dense(bool adam, DType dtype = f32) {
  Builder b("towers_by_hand");
  Value image = b.input("image", dtype, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value logits = nn::dense(flatten(image), {.units = 10});
  Value loss = identity(mean(softmax_cross_entropy(logits, one_hot(label, 10, dtype))), "loss");
  if (adam) b.minimize(loss, Adam{.epsilon = 1e-8, .powers = "exact"});
  else b.minimize(loss, Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

class TowersByHand : public testing::TestWithParam<HandRun> {};

TEST_P(TowersByHand, combine_the_gradients_as_the_listing_does) {
  NEED_SHARED("golden/towers_by_hand");
  const HandRun& run = GetParam();
  nlohmann::json golden = expected("towers_by_hand/expected.json")["runs"][run.name];
  const GoldenPlace& place = golden_place();
  Session session(one_dense(run.name.starts_with("adam")), Towers{.devices = parse_devices(place.devices), .variables = place.variables, .towers = run.towers, .combine = run.combine}, place.options);
  session.load_state(tensors("towers_by_hand/init.safetensors"));
  auto losses = golden["losses"].get<std::vector<std::vector<double>>>();
  double factor = run.combine == Combine::tower_mean ? run.towers : 1;  // what each tower has is its part of the mean
  for (std::size_t t = 0; t < losses.size(); ++t) {
    DataSet batch = mnist_rows().slice(static_cast<std::int64_t>(t) * 32, 32);
    if (t == 0) {
      Results first = session.run(batch.columns, {"gradient/dense/kernel", "gradient/dense/bias", "gradient/dense/kernel@towers", "gradient/dense/bias@towers"});
      TensorMap want = tensors("towers_by_hand/grads_step0.safetensors");
      // The file has the sum over four towers of eight rows, of which all others are a quarter.
      expect_gradients(first, want, "sum/", run.combine == Combine::tower_sum ? 1 : 4);
      if (run.combine == Combine::tower_sum) {
        for (const char* name : {"dense/kernel", "dense/bias"}) {
          auto parts = first.data<float>(std::string("gradient/") + name + "@towers");
          for (int tower = 0; tower < run.towers; ++tower) {
            const HostTensor& one = want.at("tower_" + std::to_string(tower) + "/" + name);
            HostTensor mine = HostTensor::of<float>(one.shape(), parts.subspan(static_cast<std::size_t>(tower) * one.data<float>().size(), one.data<float>().size()));
            EXPECT_TRUE(within(difference(mine, one), 0, 2e-5 * largest(one))) << name << " of tower " << tower;
          }
        }
      }
    }
    Results r = session.step(batch.columns, {"loss@towers"});
    auto each = r.data<float>("loss@towers");
    ASSERT_EQ(each.size(), losses[t].size());
    for (std::size_t i = 0; i < each.size(); ++i) EXPECT_TRUE(within(each[i] * factor, losses[t][i], 3e-6)) << "step " << t << " tower " << i;
  }
  State state = session.state();
  for (const auto& [name, value] : tensors("towers_by_hand/final_" + run.name + ".safetensors")) {
    if (name.ends_with("_power")) continue;  // computed from the step, not kept
    EXPECT_TRUE(within(difference(state.at(name), value), 0, 5e-7)) << name;
  }
}

TEST_P(TowersByHand, train_in_f64_as_an_independent_program_does) {
  NEED_SHARED("golden/towers_by_hand");
  const HandRun& run = GetParam();
  nlohmann::json losses = expected("towers_by_hand/expected.json")["float64"][run.name]["losses"];
  Session session(one_dense(run.name.starts_with("adam"), f64), Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = run.towers, .combine = run.combine});
  session.load_state(in_dtype(tensors("towers_by_hand/init.safetensors"), f64));
  const double factor = run.combine == Combine::tower_mean ? run.towers : 1;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    Results r = session.step(rows_in_f64(static_cast<std::int64_t>(t) * 32, 32).columns, {"loss@towers"});
    auto each = r.data<double>("loss@towers");
    ASSERT_EQ(each.size(), losses[t].size());
    for (std::size_t i = 0; i < each.size(); ++i) EXPECT_TRUE(within(each[i] * factor, losses[t][i], 1e-6)) << "step " << t << " tower " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, TowersByHand,
                         testing::Values(HandRun{"adam_sum", 4, Combine::tower_sum}, HandRun{"adam_mean", 4, Combine::tower_mean}, HandRun{"adam_whole", 1, Combine::global_mean},
                                         HandRun{"sgd_sum", 4, Combine::tower_sum}, HandRun{"sgd_mean", 4, Combine::tower_mean}, HandRun{"sgd_whole", 1, Combine::global_mean}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace belfry::test
