// A training as one writes it for PyTorch: shuffled batches, replicas, AdamW on a schedule, clipped gradients, evaluation, weights in a file.
#include <cstdio>

#include <belfry/belfry.h>
using namespace belfry;

constexpr std::int64_t kGlobalBatch = 64, kEpochs = 2;

Graph net(std::int64_t steps) {
  Builder b("net");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value x = nn::conv2d(image, {.filters = 16, .kernel = 3, .bias = false, .name = "conv"});
  x = relu(nn::batch_norm(x, {.momentum = 0.9, .epsilon = 1e-5, .unbiased = true, .name = "norm"}));
  x = nn::dropout(flatten(max_pool2d(x, {.window = {2, 2}})), {.rate = 0.25});
  Value logits = nn::dense(x, {.units = 10, .name = "head"});
  b.output("logits", logits);
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  Value rate = cosine_decay(b.step(), {.rate = 1e-3, .steps = steps});
  b.minimize(mean(sparse_softmax_cross_entropy(logits, label)), AdamW{.learning_rate = rate, .weight_decay = 0.01}, {.clip_norm = 1, .no_decay = "**/bias, norm/*"});
  return std::move(b).build();
}

int main() {
  draw_digits("digits", 3200, 500, 1);
  Splits data = mnist("digits");
  Batches loader(data.train, kGlobalBatch, 1, LastBatch::dropped);  // shuffled by the seed 1, another order in each epoch
  const std::int64_t steps = loader.batches_per_epoch();
  Session session(net(kEpochs * steps), Mirrored{.devices = parse_devices("sim:0,sim:1")});
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    double loss = 0;
    for (std::int64_t k = 0; k < steps; ++k) loss += static_cast<double>(session.step(loader.next(), {"loss"}).item<float>("loss"));
    std::printf("epoch %d: loss %.2f, test accuracy %.2f\n", static_cast<int>(epoch), loss / static_cast<double>(steps), evaluate(session, data.test).at("accuracy"));
  }
  write_safetensors("net.safetensors", session.weights());
  write_run_folder("run", session, {.pixels = Pixels{.rescale = {1.0 / 255, 0}}});  // for belfry predict run --feed PICTURES

  Session serving(net(1));  // on one device; the schedule and the optimizer are of no matter to it
  serving.load_weights("net.safetensors");
  std::printf("loaded elsewhere: test accuracy %.2f\n", evaluate(serving, data.test).at("accuracy"));
}
