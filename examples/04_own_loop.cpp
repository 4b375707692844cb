// A training loop of one's own: feeds in, values out, a checkpoint in the middle, and from it the same bits again.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/session/compare.h>
using namespace belfry;

Graph line() {
  Builder b("line");
  Value x = b.input("x", f32, {kBatch, 1}), y = b.input("y", f32, {kBatch, 1});
  Value error = nn::dense(x, {.units = 1, .name = "line"}) - y;
  Value loss = mean(square(error));
  b.metric("loss", loss);
  b.minimize(loss, Momentum{.learning_rate = 0.05, .momentum = 0.5});
  return std::move(b).build();
}

/// Eight points of y = 3x + 1, others in each step.
std::map<std::string, HostTensor> points(int step) {
  HostTensor x(f32, {8, 1}), y(f32, {8, 1});
  for (std::size_t i = 0; i < 8; ++i) {
    x.data<float>()[i] = static_cast<float>((step * 5 + static_cast<int>(i) * 3) % 16) / 8 - 1;
    y.data<float>()[i] = 3 * x.data<float>()[i] + 1;
  }
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

int main() {
  Session session(line());
  for (int step = 0; step < 200; ++step) {
    Results r = session.step(points(step), {"loss"});
    if (step % 50 == 0) std::printf("step %d: loss %.3f\n", step, static_cast<double>(r.item<float>("loss")));
    if (step == 99) Checkpoint::of(session).save("half.checkpoint");
  }
  std::printf("slope %.2f, offset %.2f\n", static_cast<double>(session.variable("line/kernel").item<float>()), static_cast<double>(session.variable("line/bias").item<float>()));

  Session again(line(), Towers{.devices = parse_devices("sim:0"), .towers = 1});
  Checkpoint::load("half.checkpoint").restore(again);
  for (int step = 100; step < 200; ++step) again.step(points(step));
  std::printf("from the checkpoint, on another device, the same bits: %s\n", hash_of(again.state()) == hash_of(session.state()) ? "yes" : "no");
}
