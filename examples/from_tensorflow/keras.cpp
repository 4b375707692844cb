// The two ways to use several devices: the same model on each with a share of the batch, and one model cut over them.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/sequential.h>
using namespace belfry;

Graph data_parallel() {
  Builder b("data_parallel");
  nn::Sequential model({nn::Conv2d({.filters = 32, .kernel = 3, .activation = Activation::relu}), nn::max_pool2d({.window = {2, 2}}), nn::flatten(), nn::Dense({.units = 10, .activation = Activation::softmax})});
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), label = b.input("label", i32, {kBatch});
  Value p = model(image), loss = mean(categorical_cross_entropy(p, one_hot(label, 10)));
  b.metric("accuracy", mean(equal(argmax(p), label)));
  b.minimize(loss, Adam{});
  return std::move(b).build();
}

Graph model_parallel() {
  Builder b("model_parallel");
  Value image = b.input("image", f32, {kBatch, 28, 28, 1}), first = b.input("rest", i32, {kBatch}), second = b.input("half", i32, {kBatch});
  Value output1, output2;
  {
    auto on = b.device("sim:0");
    Value x = nn::conv2d(image, {.filters = 32, .kernel = 3, .activation = Activation::relu});
    x = nn::conv2d(max_pool2d(x, {.window = {2, 2}}), {.filters = 64, .kernel = 3, .activation = Activation::relu});
    x = nn::dense(flatten(max_pool2d(x, {.window = {2, 2}})), {.units = 64, .activation = Activation::relu});
    output1 = nn::dense(x, {.units = 5, .activation = Activation::softmax, .name = "output1"});
    auto there = b.device("sim:1");
    output2 = nn::dense(x, {.units = 2, .activation = Activation::softmax, .name = "output2"});
  }
  b.output(concat({output1, output2}, 1));
  b.metric("accuracy", mean(logical_and(equal(argmax(output1), first), equal(argmax(output2), second))));
  b.minimize(mean(categorical_cross_entropy(output1, one_hot(first, 5))) + mean(categorical_cross_entropy(output2, one_hot(second, 2))), Adam{});
  return std::move(b).build();
}

int main() {
  draw_digits("digits", 2000, 500, 1);
  Splits data = mnist("digits");
  for (DataSet* set : {&data.train, &data.test}) {  // a digit is 5 * half + rest
    HostTensor rest = set->columns.at("label");
    HostTensor half = rest;
    for (std::int32_t& y : rest.data<std::int32_t>()) y %= 5;
    for (std::int32_t& y : half.data<std::int32_t>()) y /= 5;
    set->columns.emplace("rest", std::move(rest));
    set->columns.emplace("half", std::move(half));
  }
  Session both(data_parallel(), Mirrored{.devices = parse_devices("sim:0,sim:1")});
  fit(both, data.train, {.batch = 32, .epochs = 3});  // 32 is the global batch
  std::printf("data parallel: accuracy %.2f\n", evaluate(both, data.test).at("accuracy"));
  Session cut(model_parallel(), Layers{.devices = parse_devices("sim:0,sim:1")});
  fit(cut, data.train, {.batch = 32, .epochs = 3});
  std::printf("model parallel: accuracy %.2f\n", evaluate(cut, data.test).at("accuracy"));
}
