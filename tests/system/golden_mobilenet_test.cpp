// MobileNetV2 as TensorFlow trains it on digits and tunes it on pets, within the tolerances of golden/README.md and of each case.
#include "golden.h"

#include <cmath>
#include <functional>

#include <belfry/belfry.h>

namespace belfry::test {
namespace {

/// The nodes behind which Keras's layers lie. What is never trained normalises by its running statistics from the start.
std::vector<std::pair<std::string, std::string>> projections(bool trained = true) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* block : {"block_1", "block_6", "block_13"}) out.emplace_back(std::string(block) + "_project_BN", std::string(block) + (trained ? "_project_BN/batch_norm" : "_project_BN/add_1"));
  out.emplace_back("out_relu", "out_relu");
  return out;
}

void expect_activations(const Results& r, const nlohmann::json& want, double tolerance, bool trained = true) {
  EXPECT_EQ(want.size(), projections().size());
  for (const auto& [theirs, mine] : projections(trained)) expect_tensor(r[mine], want[theirs], tolerance, theirs);
}

// ---------------------------------------------------------------- mobilenetv2_mnist

DataSet mobilenet_rows(DType dtype) {
  TensorMap inputs = tensors("mobilenetv2_mnist/inputs.safetensors");
  const HostTensor& bytes = inputs.at("images");
  HostTensor images(f64, {bytes.shape()[0], 64, 64, 3});
  for (std::size_t i = 0; i < images.data<double>().size(); ++i) images.data<double>()[i] = bytes.data<std::uint8_t>()[i / 3];
  images = converted(images, dtype);
  visit_float(dtype, [&]<class T>() {
    for (T& x : images.data<T>()) x = x / static_cast<T>(127.5) - 1;
  });
  DataSet out;
  out.columns.emplace("image", std::move(images));
  out.columns.emplace("label", converted(inputs.at("labels"), i32));
  return out;
}

/// The custom loop of document A: a pooled and flattened MobileNetV2 with two dense layers.
Graph mobilenet_on_digits(DType dtype) {
  Builder b("mobilenetv2_mnist");
  Value image = b.input("image", dtype, {kBatch, 64, 64, 3}), label = b.input("label", i32, {kBatch});
  Value x = nn::mobilenet_v2(image, {.alpha = 0.35, .include_top = false});
  b.output(identity(x, "out_relu"));
  x = flatten(avg_pool2d(x, {.window = {2, 2}}));
  Value logits = nn::dense(nn::dense(x, {.units = 512}), {.units = 10});
  b.metric("probabilities", softmax(logits));
  b.minimize(identity(mean(sparse_softmax_cross_entropy(logits, label)), "loss"), Adam{});
  return std::move(b).build();
}

/// What is zero in exact arithmetic: 18 betas before a convolution and another normalisation, and the means that follow from them. In TensorFlow's f64 such gradients are below 1e-13 and
/// such values, which Adam moves by up to 1e-3/1e-7 of a gradient a step, below 2e-10; the largest element of any other tensor is above 1e-5 and 1e-4.
constexpr double kZeroGradient = 1e-12, kZeroValue = 1e-9;

/// Every element: at most `tolerance` of the tensor's largest value, or `floor`.
void expect_state(const State& state, const TensorMap& want, double tolerance, double floor = 0) {
  for (const auto& [entry, value] : want) EXPECT_TRUE(within(difference(state, entry, value), 0, std::max(floor, tolerance * largest(value)))) << entry;
}

/// Steps on rows(t); check(t, results) looks at each. The gradients of the first are those of the file, if it has a name.
void step_in_f64(Session& session, std::size_t steps, const std::vector<std::string>& fetches, const std::string& gradients, double floor, const std::function<DataSet(std::size_t)>& rows,
                 const std::function<void(std::size_t, const Results&)>& check) {
  for (std::size_t t = 0; t < steps; ++t) {
    std::vector<std::string> names = fetches;
    TensorMap want;
    if (t == 0 && !gradients.empty()) want = tensors(gradients);
    for (const std::string& name : gradient_fetches(want)) names.push_back(name);
    Results r = session.step(rows(t).columns, names);
    check(t, r);
    expect_gradients(r, want, "", 1, 1e-6, floor);
  }
}

class MobileNetOnDigits : public testing::TestWithParam<int> {};

TEST_P(MobileNetOnDigits, trains_in_f64_as_tensorflow_does) {
  NEED_SHARED("golden/mobilenetv2_mnist");
  const int T = GetParam();
  const std::string run = "towers_" + std::to_string(T);
  nlohmann::json golden = expected("mobilenetv2_mnist/expected_float64.json")["runs"][run];
  DataSet rows = mobilenet_rows(f64);
  Session session(mobilenet_on_digits(f64), towers(T));
  session.load_state(in_dtype(tensors("mobilenetv2_mnist/init.safetensors"), f64));
  auto losses = golden["losses"].get<std::vector<double>>();
  auto parts = golden["tower_losses"].get<std::vector<std::vector<double>>>();
  const std::string gradients = "mobilenetv2_mnist/grads_step0_" + run + ".safetensors";
  auto batch = [&](std::size_t t) { return rows.slice(static_cast<std::int64_t>(t) * 16, 16); };
  step_in_f64(session, losses.size(), {"loss", "loss@towers"}, gradients, kZeroGradient, batch, [&](std::size_t t, const Results& r) {
    EXPECT_TRUE(within(number(r, "loss"), losses[t], 1e-6 * losses[t])) << "step " << t;
    for (std::size_t i = 0; i < parts[t].size(); ++i) EXPECT_TRUE(within(r.data<double>("loss@towers")[i], parts[t][i], 1e-6 * losses[t])) << "step " << t << " tower " << i;
    if (t > 0) return;
    State state = session.state();
    for (const auto& [name, value] : golden["moving_statistics_after_step_1"].items()) expect_tensor(state.at(name), value, 1e-6, name);
  });
  State state = session.state();
  // With two towers two programs in f64 part further: in the losses by 7e-8, with one tower by 1e-9.
  for (const auto& [name, value] : golden["final"].items()) expect_tensor(state.at(name), value, T * 1e-6, name, kZeroValue);
  expect_state(state, tensors("mobilenetv2_mnist/final_" + run + ".safetensors"), T * 1e-6, kZeroValue);
}

TEST_P(MobileNetOnDigits, begins_in_f32_as_tensorflow_does) {
  NEED_SHARED("golden/mobilenetv2_mnist");
  const int T = GetParam();
  nlohmann::json golden = expected("mobilenetv2_mnist/expected.json")["runs"]["towers_" + std::to_string(T)];
  DataSet rows = mobilenet_rows(f32);
  Session session(mobilenet_on_digits(f32), towers(T), golden_place().options);
  session.load_state(tensors("mobilenetv2_mnist/init.safetensors"));
  auto losses = golden["losses"].get<std::vector<double>>(), spread = golden["loss_spread"].get<std::vector<double>>();
  for (std::size_t t = 0; t < losses.size(); ++t) {
    double loss = number(session.step(rows.slice(static_cast<std::int64_t>(t) * 16, 16).columns, {"loss"}), "loss");
    if (t == 0) {
      EXPECT_TRUE(within(loss, losses[0], 2e-4));
      State state = session.state();
      for (const char* name : {"bn_Conv1/moving_mean", "bn_Conv1/moving_variance"}) {
        auto first = golden["moving_statistics_after_step_1"][name]["first8"].get<std::vector<double>>();
        for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(within(state.at(name).data<float>()[i], first[i], 1e-6)) << name;
      }
    }
    expect_loss(loss, losses[t], spread[t], t);
  }
}

INSTANTIATE_TEST_SUITE_P(Towers, MobileNetOnDigits, testing::Values(1, 2), [](const auto& info) { return std::to_string(info.param); });

TEST(MobileNetOnDigits, infers_from_the_initial_weights) {
  NEED_SHARED("golden/mobilenetv2_mnist");
  nlohmann::json golden = expected("mobilenetv2_mnist/expected.json")["inference_initial_weights_rows_0_4"];
  Session session(mobilenet_on_digits(f32), Single{});
  session.load_state(tensors("mobilenetv2_mnist/init.safetensors"));
  std::vector<std::string> fetches = {"probabilities"};
  for (const auto& [theirs, mine] : projections()) fetches.push_back(mine);
  Results r = session.predict(mobilenet_rows(f32).slice(0, 4).columns, fetches);
  expect_activations(r, golden["activations"], 1e-5);
  auto probabilities = golden["probabilities"].get<std::vector<std::vector<double>>>();
  for (std::size_t row = 0; row < probabilities.size(); ++row)
    for (std::size_t k = 0; k < 10; ++k) EXPECT_TRUE(within(r.data<float>("probabilities")[row * 10 + k], probabilities[row][k], 1e-5));
}

// ---------------------------------------------------------------- finetune_pets

struct Tuning {
  bool whole;
  int replicas;
  std::string name() const { return (whole ? "whole_replicas_" : "frozen_replicas_") + std::to_string(replicas); }
};

Graph tuned(const Tuning& run, DType dtype) {
  Builder b("finetune_pets");
  Value image = b.input("image", dtype, {kBatch, 96, 96, 3}), label = b.input("label", dtype, {kBatch, 1});
  Value x = nn::mobilenet_v2(image, {.alpha = 0.35, .include_top = false, .trainable = run.whole});
  b.output(identity(x, "out_relu"));
  x = nn::dense(global_avg_pool2d(x), {.units = 512, .activation = Activation::relu});
  Value logit = nn::dense(nn::dropout(x, {.rate = 0}), {.units = 1});
  b.metric("logits", logit);
  b.metric("accuracy", mean(equal(greater(logit, constant_like(logit, 0)), greater(label, constant_like(label, 0.5)))));
  Value rate = epoch_ramp(b.step(), {.epoch_steps = 1, .start = 1e-5, .most = scaled_rate(5e-5, run.replicas), .least = 1e-5, .factor = 0.8, .up = 5});
  b.metric("rate", rate);
  b.minimize(identity(mean(binary_cross_entropy(logit, label, {.from_logits = true})), "loss"), Adam{.learning_rate = rate});
  return std::move(b).build();
}

DataSet pet_rows(DType dtype) {
  TensorMap inputs = tensors("finetune_pets/inputs.safetensors");
  DataSet out;
  out.columns.emplace("image", converted(inputs.at("images"), dtype));
  out.columns.emplace("label", converted(inputs.at("labels"), dtype));
  return out;
}

TensorMap pretrained_with_head() {
  TensorMap out = read_safetensors(kShared / "data/mobilenetv2/mobilenet_v2_0.35_224_no_top.safetensors");
  out.merge(tensors("finetune_pets/init.safetensors"));
  return out;
}

class FinetunePets : public testing::TestWithParam<Tuning> {};

TEST_P(FinetunePets, follows_tensorflow) {
  NEED_SHARED("golden/finetune_pets");
  const Tuning& run = GetParam();
  nlohmann::json golden = expected("finetune_pets/expected.json")["runs"][run.name()];
  DataSet rows = pet_rows(f32);
  Session session(tuned(run, f32), towers(run.replicas), golden_place().options);
  session.load_state(pretrained_with_head());
  auto losses = golden["losses"].get<std::vector<double>>(), spread = golden["loss_spread"].get<std::vector<double>>(), accuracy = golden["accuracy_logit_over_0"].get<std::vector<double>>();
  auto rate = golden["learning_rate"].get<std::vector<double>>();
  for (std::size_t t = 0; t < losses.size(); ++t) {
    Results r = session.step(rows.slice(t % 2 ? 8 : 0, 8).columns, {"loss", "accuracy", "rate"});
    if (run.whole) expect_loss(number(r, "loss"), losses[t], spread[t], t);
    else EXPECT_TRUE(within(number(r, "loss"), losses[t], 1e-5)) << "step " << t;
    EXPECT_TRUE(within(number(r, "accuracy"), accuracy[t], 1e-6)) << "step " << t;
    EXPECT_TRUE(within(number(r, "rate"), rate[t], 1e-6 * rate[t])) << "step " << t;
  }
  if (run.whole) return;
  State state = session.state();
  for (const auto& [entry, value] : tensors("finetune_pets/final_" + run.name() + ".safetensors")) EXPECT_TRUE(within(difference(state, entry, value), 0, 1e-5)) << entry;
}

TEST_P(FinetunePets, follows_tensorflow_in_f64) {
  NEED_SHARED("golden/finetune_pets");
  const Tuning& run = GetParam();
  nlohmann::json golden = expected("finetune_pets/expected_float64.json")["runs"][run.name()];
  DataSet rows = pet_rows(f64);
  Session session(tuned(run, f64), towers(run.replicas));
  session.load_state(in_dtype(pretrained_with_head(), f64));
  auto losses = golden["losses"].get<std::vector<double>>();
  const std::string gradients = run.replicas == 1 ? "finetune_pets/grads_step0_" + run.name() + ".safetensors" : "";
  step_in_f64(session, losses.size(), {"loss"}, gradients, kZeroGradient, [&](std::size_t t) { return rows.slice(t % 2 ? 8 : 0, 8); },
              [&](std::size_t t, const Results& r) { EXPECT_TRUE(within(number(r, "loss"), losses[t], 1e-6)) << "step " << t; });
  State state = session.state();
  for (const auto& [name, value] : golden["final"].items()) expect_tensor(state.at(name), value, 1e-6, name);
  expect_state(state, tensors("finetune_pets/final_" + run.name() + ".safetensors"), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Runs, FinetunePets, testing::Values(Tuning{true, 1}, Tuning{true, 4}, Tuning{false, 1}, Tuning{false, 4}), [](const auto& info) { return info.param.name(); });

class PretrainedFeatures : public testing::TestWithParam<bool> {};

TEST_P(PretrainedFeatures, are_where_tuning_begins) {
  NEED_SHARED("golden/finetune_pets");
  nlohmann::json golden = expected("finetune_pets/expected.json");
  nlohmann::json want = golden["inference_initial_weights_rows_0_4"];
  Session session(tuned({GetParam(), 1}, f32), Single{});
  session.load_state(pretrained_with_head());
  std::vector<std::string> fetches = {"logits"};
  for (const auto& [theirs, mine] : projections(GetParam())) fetches.push_back(mine);
  Results r = session.predict(pet_rows(f32).slice(0, 4).columns, fetches);
  auto logits = want["logits"].get<std::vector<double>>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(within(r.data<float>("logits")[i], logits[i], 2e-5));
  expect_activations(r, want["activations"], 1e-5, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Extractor, PretrainedFeatures, testing::Bool(), [](const auto& info) { return info.param ? "whole" : "frozen"; });

TEST(PretrainedFeatures, of_a_sine_are_those_of_the_fixture) {
  NEED_SHARED("golden/finetune_pets");
  nlohmann::json want = expected("finetune_pets/expected.json")["sine_fixture_224_pooled"];
  Builder b("sine");
  b.output(identity(global_avg_pool2d(nn::mobilenet_v2(b.input("image", f32, {kBatch, 224, 224, 3}), {.alpha = 0.35, .include_top = false})), "pooled"));
  Session session(std::move(b).build(), Single{});
  session.load_state(read_safetensors(kShared / "data/mobilenetv2/mobilenet_v2_0.35_224_no_top.safetensors"));
  HostTensor pooled = session.predict({{"image", sines({1, 224, 224, 3})}}, {"pooled"})["pooled"];
  auto first = want["first5"].get<std::vector<double>>();
  double sum = 0;
  for (float x : pooled.data<float>()) sum += static_cast<double>(x);
  EXPECT_TRUE(within(sum, want["sum"], 1e-5 * want["sum"].get<double>()));
  EXPECT_TRUE(within(norm(pooled), want["l2"], 1e-5 * want["l2"].get<double>()));
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(within(pooled.data<float>()[i], first[i], 1e-5 * largest(pooled))) << i;
}

}  // namespace
}  // namespace belfry::test
