// A strategy mirrors the variables over devices; a loop of one's own over global batches; losses scaled by the global batch and summed.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
using namespace belfry;

constexpr std::int64_t kGlobalBatch = 64;
constexpr int kEpochs = 5;

Graph model() {
  Builder b("mnist_mobilenet");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value grey = pad(image, {.before = {0, 2, 2, 0}, .after = {0, 2, 2, 0}});  // 32 x 32 is the least that MobileNetV2 takes
  grey = grey * 2.0 - 1.0;  // the net's pixels are of -1 to 1
  Value x = nn::mobilenet_v2(concat({grey, grey, grey}, 3), {.alpha = 0.35, .include_top = false});
  x = nn::dense(global_avg_pool2d(x), {.units = 512});
  Value p = nn::dense(x, {.units = 10, .activation = Activation::softmax});
  Value per_example = categorical_cross_entropy(p, one_hot(label, 10));
  // Each replica adds up its own examples over the global batch; the replicas' sums are added.
  Value loss = identity(reduce_sum(per_example) * (1.0 / kGlobalBatch), "train_loss");
  b.metric("train_accuracy", mean(equal(argmax(p), label)));
  b.minimize(loss, Adam{.learning_rate = 0.0003});
  return std::move(b).build();
}

int main() {
  draw_digits("digits", 1280, 64, 1);
  DataSet train = mnist("digits").train;
  Session session(model(), Mirrored{.devices = parse_devices("sim:0,sim:2,sim:3,sim:5"), .combine = Combine::tower_sum});
  double accuracy = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double loss = 0, steps = 0;
    accuracy = 0;
    Batches batches(train, kGlobalBatch, {}, LastBatch::runs_on);
    for (; steps < static_cast<double>(batches.batches_per_epoch()); ++steps) {
      Results r = session.step(batches.next(), {"train_loss", "train_accuracy"});  // 16 rows a replica
      loss += static_cast<double>(r.item<float>("train_loss"));
      accuracy += static_cast<double>(r.item<float>("train_accuracy"));
    }
    std::printf("Epoch %2d/%2d  loss %.2f\n", epoch + 1, kEpochs, loss / steps);
    accuracy /= steps;
  }
  std::printf("accuracy of the last epoch %.1f\n", accuracy);
}
