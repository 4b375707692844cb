// Towers by hand, as the plan writes them: the batch split in equal parts, a tower per device, gradients added, one update on the CPU.
#include <cstdio>

#include <belfry/belfry.h>
using namespace belfry;

int main() {
  Builder b("towers");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value logits = nn::dense(flatten(image), {.units = 10, .name = "model"});
  b.output(softmax(logits));
  Value loss = mean(softmax_cross_entropy(logits, one_hot(label, 10)));
  b.metric("loss", loss);
  b.minimize(loss, Adam{.learning_rate = 1e-3});

  // tower_sum adds the towers' gradients, as the listing does; without it the update is that of the whole batch's mean.
  Session session(std::move(b).build(), Towers{.devices = parse_devices("sim:0,sim:1"), .variables = cpu(0), .combine = Combine::tower_sum});
  for (const PlanNode& n : session.plan(64).nodes)
    if (n.op == "aggregate" || n.op == "adam") std::printf("%s: %s\n", n.op.c_str(), n.name.c_str());
  draw_digits("digits", 2048, 64, 1);
  Splits data = mnist("digits");
  fit(session, data.train, {.batch = 64, .epochs = 2});
  std::printf("test loss %.2f\n", evaluate(session, data.test, 64).at("loss"));
}
