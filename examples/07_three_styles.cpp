// The same net three times: as free functions of Values, as layer objects in a row, as a graph file. All three train to the same bits.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/nn/sequential.h>
#include <belfry/frontends/session/compare.h>
using namespace belfry;

Graph finished(Builder b, Value logits, Value label) {
  b.output(logits);
  Value loss = mean(sparse_softmax_cross_entropy(logits, label));
  b.metric("loss", loss);
  b.minimize(loss, Sgd{.learning_rate = 0.1});
  return std::move(b).build();
}

Graph functions() {
  Builder b("digits");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value x = nn::dense(flatten(image), {.units = 32, .activation = Activation::relu, .name = "hidden"});
  Value logits = nn::dense(x, {.units = 10, .name = "logits"});
  return finished(std::move(b), logits, label);
}

Graph layers() {
  Builder b("digits");
  nn::Sequential net({nn::flatten(), nn::Dense({.units = 32, .activation = Activation::relu, .name = "hidden"}), nn::Dense({.units = 10, .name = "logits"})});
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value logits = net(image);
  return finished(std::move(b), logits, label);
}

Graph file() { return read_graph(write_graph(functions()), "digits.json", standard_library()->ops); }

int main() {
  draw_digits("digits", 2000, 500, 1);
  Splits data = mnist("digits");
  auto trained = [&](const char* style, Graph graph) {
    Session session(std::move(graph));
    fit(session, data.train, {.batch = 32, .epochs = 1});
    std::printf("%s: loss %.2f\n", style, evaluate(session, data.test).at("loss"));
    return hash_of(session.state());
  };
  std::string a = trained("functions", functions()), b = trained("layers", layers()), c = trained("a file", file());
  std::printf("the same bits: %s\n", a == b && b == c ? "yes" : "no");
}
