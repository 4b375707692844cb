// A model's weights apart from its training: which they are, what loads into another net, and what is said where it does not.
#include <gtest/gtest.h>

#include <belfry/belfry.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/plan_file.h>
#include <belfry/frontends/state/npy.h>

#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

/// A net with batch norm, dropout and a head; its optimizer has slots, averages and a loss scale.
Graph normed(const Optimizer& optimizer, std::int64_t classes = 3, const MinimizeOptions& options = {}) {
  Builder b("normed");
  Value x = b.input("x", f32, {kBatch, 4});
  Value y = nn::dropout(nn::batch_norm(nn::dense(x, {.units = 5, .name = "body"}), {.name = "norm"}), {.rate = 0.5});
  y = nn::dense(y, {.units = classes, .bias = false, .name = "head"});
  b.output("scores", y);
  b.minimize(mean(square(y)), optimizer, options);
  return std::move(b).build();
}

HostTensor two_rows() { return HostTensor::of<float>({2, 4}, {1, 2, 3, 4, -1, 0, 1, 2}); }

const std::vector<std::string> kWeights = {"body/bias", "body/kernel", "head/kernel", "norm/beta", "norm/gamma", "norm/moving_mean", "norm/moving_variance"};

std::vector<std::string> names_of(const State& state) {
  std::vector<std::string> out;
  for (const auto& [name, value] : state) out.push_back(name);
  return out;
}

State trained_state(Session& session) {
  session.step({{"x", two_rows()}});
  return session.state();
}

TEST(Weights, are_what_the_model_has_without_what_its_training_has) {
  const MinimizeOptions all = {.average_decay = 0.9, .loss_scale = 8, .loss_scale_steps = 4};
  Session session(normed(AdamW{}, 3, all));
  trained_state(session);
  EXPECT_EQ(session.state().size(), 7u + 2 * 5 + 5 + 4);  // weights, slots and averages of what is trained, step, seed and the loss scale's two
  EXPECT_EQ(names_of(session.weights()), kWeights);
  // The same of a plan that was read from a file.
  Session given = Session::from_plan(std::make_shared<const PlacedGraph>(read_plan(write_plan(session.plan(2)), "plan.json", standard_library()->ops)));
  EXPECT_EQ(names_of(given.weights()), kWeights);
}

TEST(Weights, of_a_whole_state_or_a_file_load_into_a_net_with_another_optimizer) {
  const MinimizeOptions averaged = {.average_decay = 0.9, .loss_scale = 8, .loss_scale_steps = 4};
  Session from(normed(Adam{.learning_rate = 0.1}, 3, averaged)), to(normed(Momentum{}), {.seed = 9});
  const State state = trained_state(from), before = to.state();
  EXPECT_TRUE(says([&] { to.load_state(state); }, {"no variable 'adam_m/body/bias'", "no variable 'adam_v/body/bias'", "and 11 more"}));
  EXPECT_TRUE(says([&] { to.load_state({{"a/kernel", HostTensor(f32, {3})}, {"b", HostTensor(f32, {3})}}); }, {"no variable 'a/kernel'", "the state of another graph", "or a state that was saved of this one"}));
  const Folder folder;
  write_safetensors(folder / "state.safetensors", state);
  write_npz(folder / "weights.npz", from.weights());
  for (const char* file : {"state.safetensors", "weights.npz"}) {
    to.load_state(before);
    const LoadedWeights passed_over = to.load_weights((folder / file).string());
    EXPECT_TRUE(passed_over.missing.empty() && passed_over.unknown.empty()) << file;
    EXPECT_EQ(to.weights(), from.weights()) << file;
    EXPECT_EQ(to.variable("momentum_m/body/bias"), before.at("momentum_m/body/bias")) << file;
    EXPECT_EQ(to.predict({{"x", two_rows()}})["scores"], from.predict({{"x", two_rows()}})["scores"]) << file;
  }
}

TEST(Weights, that_do_not_fit_are_named_all_at_once) {
  Session session(normed(Sgd{}));
  State given = session.weights();
  given.erase("norm/beta");
  given.erase("norm/gamma");
  given.emplace("norm/gama", HostTensor(f32, {5}));
  given.emplace("tail/kernel", HostTensor(f32, {5}));
  EXPECT_TRUE(says([&] { session.load_weights(given); }, {"graph 'normed'", "missing: norm/beta, norm/gamma", "unknown: norm/gama; did you mean norm/gamma", "tail/kernel", "{.strict = false}"}));
  const LoadedWeights passed_over = session.load_weights(given, {.strict = false});
  EXPECT_EQ(passed_over.missing, (std::vector<std::string>{"norm/beta", "norm/gamma"}));
  EXPECT_EQ(passed_over.unknown, (std::vector<std::string>{"norm/gama", "tail/kernel"}));
  // A head of other classes is no matter of names.
  const State other = Session(normed(Sgd{}, 7)).weights(), before = session.state();
  EXPECT_TRUE(says([&] { session.load_weights(other, {.strict = false}); }, {"of another type: head/kernel is f32(5, 3), but f32(5, 7) in what is given"}));
  EXPECT_TRUE(says([&] { session.load_weights({{"step", HostTensor::scalar<std::int64_t>(3)}}, {.strict = false}); }, {"none of the 1 arrays is one of its 7 weights"}));
  EXPECT_EQ(session.state(), before);
}

TEST(Weights, of_pytorch_are_told_what_they_are_here) {
  Session session(normed(Sgd{}));
  EXPECT_TRUE(says([&] { session.load_state({{"norm.weight", HostTensor(f32, {5})}}); }, {"'norm.weight'; did you mean norm/gamma?"}));
  Folder folder;
  const std::filesystem::path zip = folder / "net.pt";
  write_file(zip.string(), std::string("PK\3\4 and more"));
  EXPECT_TRUE(says([&] { session.load_weights(zip.string()); }, {"net.pt, byte 0: a zip: torch.save's files are not read; safetensors.torch.save_file"}));
}

TEST(Weights, that_are_not_among_those_of_a_state_are_given_back_by_name) {
  Session session(normed(Sgd{}));
  EXPECT_EQ(session.load_state(session.state()), std::vector<std::string>{});
  EXPECT_EQ(session.load_state({{"norm/beta", HostTensor(f32, {5})}}).size(), 8u);
  EXPECT_TRUE(says([&] { session.load_state({{"norm/bta", HostTensor(f32, {5})}, {"norm/beta", HostTensor(f32, {6})}}); }, {"'norm/bta'; did you mean norm/beta", "'norm/beta' is f32(5), not f32(6)"}));
}

TEST(Weights, of_another_precision_say_how_they_become_those_of_here) {
  Session session(normed(Sgd{}));
  State halves, others;
  for (const auto& [name, value] : session.weights()) {
    halves.emplace(name, converted(value, f16));
    others.emplace(name + "_bn_folded", value);
  }
  EXPECT_TRUE(says([&] { session.load_state(halves); }, {"not f16(", "as given", "and 1 more; converted(tensor, f32)"}));
  EXPECT_TRUE(says([&] { session.load_weights(halves); }, {"of another type: ", "and 1 more; converted(tensor, f32), or numpy's astype"}));
  EXPECT_TRUE(says([&] { session.load_weights(others); }, {"and 1 more; unknown: "}));
}

}  // namespace
}  // namespace belfry::test
