// One body, two heads, two losses: device scopes say what sits where (here on simulated devices with memory of their own), and the plan shows what crosses.
#include <cstdio>

#include <belfry/belfry.h>
using namespace belfry;

int main() {
  Builder b("two_heads");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1});
  Value label = b.input("label", i32, {kBatch});
  Value body, logits, guess;
  {
    auto on = b.device("sim:0");
    body = nn::dense(flatten(image), {.units = 64, .activation = Activation::relu, .name = "body"});
    logits = nn::dense(body, {.units = 10, .name = "digit"});
  }
  {
    auto on = b.device("sim:1");
    guess = nn::dense(body, {.units = 1, .name = "even"});
  }
  Value is_even = reshape(gather(constant(b.graph(), HostTensor::of<float>({10}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0})), label), {kBatch, 1});
  Value digit_loss = mean(sparse_softmax_cross_entropy(logits, label));
  Value even_loss = mean(sigmoid_cross_entropy(guess, is_even));
  b.metric("loss of digits", digit_loss);
  b.metric("loss of even", even_loss);
  b.minimize(digit_loss + 0.5 * even_loss, Adam{.learning_rate = 1e-3});

  draw_digits("digits", 2000, 500, 1);
  Splits data = mnist("digits");
  Session session(std::move(b).build(), Layers{.devices = parse_devices("sim:0,sim:1")});
  for (const PlanNode& n : session.plan(32).nodes)
    if (n.inserted && n.op == "copy") std::printf("crosses: %s\n", n.name.c_str());
  fit(session, data.train, {.batch = 32, .epochs = 3});
  for (const auto& [name, value] : evaluate(session, data.test)) std::printf("%s %.2f\n", name.c_str(), value);
}
