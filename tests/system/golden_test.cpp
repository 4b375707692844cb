// TensorFlow's results on the documents' nets, within the tolerances that stand with them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

#include <belfry/belfry.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/nn/nets.h>
#include <belfry/frontends/state/safetensors.h>

#include "ran_as_planned.h"

namespace belfry::test {
namespace {

const std::filesystem::path kShared = BELFRY_SHARED;

#define NEED_SHARED(folder) \
  if (!std::filesystem::exists(kShared / (folder))) GTEST_SKIP() << "the golden data '" << (folder) << "' are not beside the source tree"

nlohmann::json expected(const std::string& name) { return nlohmann::json::parse(std::ifstream(kShared / "golden" / name / "expected.json")); }
TensorMap tensors(const std::string& file) { return read_safetensors(kShared / "golden" / file); }

const DataSet& rows() {
  static const DataSet train = mnist(kShared / "data/mnist").train;
  return train;
}

double largest(const HostTensor& t) {
  double out = 0;
  for (float x : t.data<float>()) out = std::max(out, std::abs(static_cast<double>(x)));
  return out;
}

/// The largest difference; infinite where shapes differ or a number is none.
double difference(const HostTensor& a, const HostTensor& b, double factor = 1) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.type() != b.type()) return kInfinite;
  double out = 0;
  for (std::size_t i = 0; i < a.data<float>().size(); ++i) {
    double d = std::abs(factor * static_cast<double>(a.data<float>()[i]) - static_cast<double>(b.data<float>()[i]));
    out = std::isnan(d) ? kInfinite : std::max(out, d);
  }
  return out;
}

/// Rule 1 of the README: at most 2e-5 of the tensor's largest value.
void expect_gradients(const Results& got, const TensorMap& want, const std::string& prefix = "", double factor = 1) {
  for (const auto& [name, gradient] : want) {
    if (!name.starts_with(prefix)) continue;
    std::string variable = name.substr(prefix.size());
    EXPECT_LE(difference(got["gradient/" + variable], gradient, factor), 2e-5 * largest(gradient)) << name;
  }
}

/// Rule 2 of the README.
void expect_loss(double got, double want, double spread, std::int64_t step) {
  EXPECT_LE(std::abs(got - want), 4 * spread + 3e-6 * std::max(1.0, std::abs(want))) << "step " << step;
}

Graph mnist_cnn() { return net_named("mnist_cnn").build(std::make_shared<const OpSet>(standard_ops())); }

void load(Session& session, const TensorMap& init) { session.load_state(init); }

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
  nlohmann::json want = expected("mnist_cnn"), golden = want["runs"][run.name];
  Session session(mnist_cnn(), Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = run.towers});
  load(session, tensors("mnist_cnn/init.safetensors"));
  session.set_trace(true);
  auto losses = golden["losses"].get<std::vector<double>>(), spread = golden["loss_spread"].get<std::vector<double>>();
  auto accuracy = golden["accuracy"].get<std::vector<double>>();
  std::vector<std::string> fetches = {"loss", "accuracy"};
  for (std::size_t t = 0; t < losses.size(); ++t) {
    DataSet batch = rows().slice(static_cast<std::int64_t>(t) * run.batch, run.batch);
    if (t == 0 && run.batch == 32) {
      Results first = session.run(batch.columns, {"loss", "gradient/conv2d/kernel", "gradient/conv2d/bias", "gradient/dense/kernel", "gradient/dense/bias"});
      EXPECT_LE(std::abs(first.item<float>("loss") - losses[0]), 2e-6 * losses[0]);
      expect_gradients(first, tensors("mnist_cnn/grads_step0.safetensors"));
    }
    Results r = session.step(batch.columns, fetches);
    expect_loss(r.item<float>("loss"), losses[t], spread[t], static_cast<std::int64_t>(t));
    EXPECT_NEAR(r.item<float>("accuracy"), accuracy[t], 1e-6) << "step " << t;
  }
  EXPECT_RAN_AS_PLANNED(session);
  State state = session.state();
  for (const auto& [name, value] : tensors("mnist_cnn/" + run.final_file)) EXPECT_LE(difference(state.at(name), value), 1e-4) << name;
}

INSTANTIATE_TEST_SUITE_P(Runs, MnistCnn,
                         testing::Values(CnnRun{"towers_1", "final.safetensors", 1, 32}, CnnRun{"towers_2", "final_towers_2.safetensors", 2, 32},
                                         CnnRun{"towers_4", "final_towers_4.safetensors", 4, 32}, CnnRun{"uneven_30_over_4", "final_uneven_30_over_4.safetensors", 4, 30}),
                         [](const auto& info) { return info.param.name; });

TEST(MnistCnn, the_probe_at_the_final_state_agrees) {
  NEED_SHARED("golden/mnist_cnn");
  nlohmann::json probe = expected("mnist_cnn")["probe_at_final"];
  Session session(mnist_cnn(), Towers{.devices = parse_devices("cpu:0,cpu:1")});
  TensorMap final_state = tensors("mnist_cnn/final.safetensors");
  session.load_state(final_state);
  Results r = session.run(rows().slice(0, 32).columns, {"loss", "gradient/conv2d/kernel", "gradient/conv2d/bias", "gradient/dense/kernel", "gradient/dense/bias"});
  EXPECT_LE(std::abs(r.item<float>("loss") - probe["loss"].get<double>()), 2e-6 * probe["loss"].get<double>());
  for (const auto& [name, gradient] : probe["grads"].items()) {
    double l2 = 0, most = largest(r["gradient/" + name]);
    auto first = gradient["first8"].get<std::vector<double>>();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(r.data<float>("gradient/" + name)[i], first[i], 2e-5 * most) << name << " element " << i;
    for (float x : r.data<float>("gradient/" + name)) l2 += static_cast<double>(x) * static_cast<double>(x);
    EXPECT_NEAR(std::sqrt(l2), gradient["l2"].get<double>(), 2e-5 * gradient["l2"].get<double>()) << name;
  }
}

// ---------------------------------------------------------------- towers_by_hand

struct HandRun {
  std::string name;
  int towers;
  Combine combine;
};

Graph one_dense(bool adam) {
  Builder b("towers_by_hand");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value logits = nn::dense(flatten(image), {.units = 10});
  Value loss = identity(mean(softmax_cross_entropy(logits, one_hot(label, 10))), "loss");
  if (adam) b.minimize(loss, Adam{.epsilon = 1e-8, .powers = "exact"});
  else b.minimize(loss, Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

class TowersByHand : public testing::TestWithParam<HandRun> {};

TEST_P(TowersByHand, combine_the_gradients_as_the_listing_does) {
  NEED_SHARED("golden/towers_by_hand");
  const HandRun& run = GetParam();
  nlohmann::json golden = expected("towers_by_hand")["runs"][run.name];
  Session session(one_dense(run.name.starts_with("adam")), Towers{.devices = parse_devices("cpu:0,cpu:1"), .towers = run.towers, .combine = run.combine});
  load(session, tensors("towers_by_hand/init.safetensors"));
  auto losses = golden["losses"].get<std::vector<std::vector<double>>>();
  double factor = run.combine == Combine::tower_mean ? run.towers : 1;  // what each tower has is its part of the mean
  for (std::size_t t = 0; t < losses.size(); ++t) {
    DataSet batch = rows().slice(static_cast<std::int64_t>(t) * 32, 32);
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
            EXPECT_LE(difference(mine, one), 2e-5 * largest(one)) << name << " of tower " << tower;
          }
        }
      }
    }
    Results r = session.step(batch.columns, {"loss@towers"});
    auto each = r.data<float>("loss@towers");
    ASSERT_EQ(each.size(), losses[t].size());
    for (std::size_t i = 0; i < each.size(); ++i) EXPECT_NEAR(each[i] * factor, losses[t][i], 3e-6) << "step " << t << " tower " << i;
  }
  State state = session.state();
  for (const auto& [name, value] : tensors("towers_by_hand/final_" + run.name + ".safetensors")) {
    if (name.ends_with("_power")) continue;  // computed from the step, not kept
    EXPECT_LE(difference(state.at(name), value), 5e-7) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, TowersByHand,
                         testing::Values(HandRun{"adam_sum", 4, Combine::tower_sum}, HandRun{"adam_mean", 4, Combine::tower_mean}, HandRun{"adam_whole", 1, Combine::global_mean},
                                         HandRun{"sgd_sum", 4, Combine::tower_sum}, HandRun{"sgd_mean", 4, Combine::tower_mean}, HandRun{"sgd_whole", 1, Combine::global_mean}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace belfry::test
