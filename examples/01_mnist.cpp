// A convolutional net learns digits: one graph, one strategy, `fit` and `evaluate`.
#include <cstdio>

#include <belfry/belfry.h>
using namespace belfry;

int main(int argc, char** argv) {
  if (argc < 2) draw_digits("digits", 4000, 1000, 1);  // no data at hand: digits drawn by the program
  Splits data = mnist(argc < 2 ? "digits" : argv[1]);

  Builder b("mnist_cnn");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1});
  Value label = b.input("label", i32, {kBatch});
  Value x = nn::conv2d(image, {.filters = 16, .kernel = 3, .activation = Activation::relu});
  x = flatten(max_pool2d(x, {.window = {2, 2}}));
  Value logits = nn::dense(x, {.units = 10, .name = "logits"});
  b.output(logits);
  b.metric("accuracy", mean(equal(argmax(logits), label)));
  b.minimize(mean(sparse_softmax_cross_entropy(logits, label)), Adam{.learning_rate = 1e-3});

  Session session(std::move(b).build());
  fit(session, data.train, {.batch = 32, .epochs = 2, .on_epoch = [](const Progress& p) {
                              std::printf("epoch %d: accuracy %.2f\n", static_cast<int>(p.epoch) + 1, p.metrics.at("accuracy"));
                            }});
  std::printf("test accuracy %.2f\n", evaluate(session, data.test).at("accuracy"));
}
