// An op that Belfry has not: defined in examples/softsign, added to a library of one's own, trained on two towers like any other.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/cli/cli.h>

#include "softsign/softsign.h"
using namespace belfry;

/// The largest difference between the gradient of w that a step computes and what a small change of w makes of the loss.
double gradient_error(std::shared_ptr<const Library> library) {
  Builder b("check", library->ops);
  Value w = b.variable("w", {5}, {.dtype = f64, .init = "normal", .init_value = 1});
  b.minimize(mean(square(my::softsign(w) + 1.0)), Sgd{});
  Session session(std::move(b).build(), {.library = library});
  const HostTensor at = session.variable("w"), gradient = session.run({}, {"gradient/w"})["gradient/w"];
  auto loss_with = [&](std::size_t i, double change) {
    HostTensor moved = at;
    moved.data<double>()[i] += change;
    session.load_state({{"w", moved}});
    return session.run({}, {"loss"}).item<double>("loss");
  };
  double worst = 0;
  for (std::size_t i = 0; i < 5; ++i) worst = std::max(worst, std::abs(gradient.data<double>()[i] - (loss_with(i, 1e-6) - loss_with(i, -1e-6)) / 2e-6));
  return worst;
}

int main(int argc, char** argv) {
  auto ops = std::make_shared<OpSet>(standard_ops());
  ops->add(my::softsign_def());
  auto library = std::make_shared<Library>(*standard_library());
  library->ops = ops;
  if (argc > 1) return cli_main(argc, argv, library);  // with a verb this program is belfry and one op more
  std::printf("the gradient is right: %s\n", gradient_error(library) < 1e-8 ? "yes" : "no");

  Builder b("own_op", ops);
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value x = my::softsign(nn::dense(flatten(image), {.units = 32, .name = "hidden"}));
  Value logits = nn::dense(x, {.units = 10, .name = "logits"});
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.minimize(mean(sparse_softmax_cross_entropy(logits, label)), Adam{.learning_rate = 3e-3});

  draw_digits("digits", 4000, 1000, 1);
  Splits data = mnist("digits");
  Session session(std::move(b).build(), Towers{.devices = parse_devices("cpu:0,cpu:1")}, {.library = library});
  fit(session, data.train, {.batch = 32, .epochs = 3});
  for (const PlanNode& n : session.plan(32).nodes)
    if (n.op == "softsign") std::printf("%s runs as %s\n", n.op.c_str(), n.by_class[0].kernel.c_str());
  std::printf("test accuracy %.2f\n", evaluate(session, data.test).at("accuracy"));
}
