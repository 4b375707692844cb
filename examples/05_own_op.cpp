// An op that Belfry has not: defined in examples/softsign, added to a library of one's own, checked, trained on two towers like any other.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/cli/cli.h>

#include "softsign/softsign.h"
using namespace belfry;

int main(int argc, char** argv) {
  auto ops = std::make_shared<OpSet>(standard_ops());
  ops->add(my::softsign_def());
  auto library = std::make_shared<Library>(*standard_library());
  library->ops = ops;
  if (argc > 1) return cli_main(argc, argv, library);  // with a verb this program is belfry and one op more
  const std::vector<std::string> objections =
      check_op(*library, "softsign", {{.name = "rows", .inputs = {{.type = {f32, {kBatch, 5}}}}}, {.name = "parameters", .inputs = {{.type = {f32, {4}}, .low = -9, .high = 9}}}});
  for (const std::string& o : objections) std::printf("%s\n", o.c_str());
  std::printf("objections to softsign: %zu\n", objections.size());

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
