// The CIFAR-10 tutorial on several devices: losses of each tower, their mean gradient, a rate that falls in stairs, moving averages, checkpoints.
#include <cstdio>
#include <filesystem>

#include <belfry/belfry.h>
#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/nn/nets/nets.h>
using namespace belfry;

constexpr std::int64_t kGpus = 2, kBatchOfTower = 32;

Graph train_graph(std::int64_t examples) {
  Builder b("cifar10");
  Value image = b.input("image", f32, {kBatch, 24, 24, 3}), label = b.input("label", i32, {kBatch});
  Value logits = nn::cifar10(image);  // inference(images)
  Value cross_entropy = mean(sparse_softmax_cross_entropy(logits, label));
  Value total_loss = identity(cross_entropy + b.l2_penalty("local3/kernel, local4/kernel", 0.004), "total_loss");
  b.metric("cross_entropy", cross_entropy);
  const std::int64_t batches_per_epoch = examples / kBatchOfTower / kGpus, decay_steps = batches_per_epoch * 350;
  Value rate = exponential_decay(b.step(), {.rate = 0.1, .steps = decay_steps, .factor = 0.1, .staircase = true});
  b.minimize(total_loss, Sgd{.learning_rate = rate}, {.average_decay = 0.9999, .average_by_step = true});
  return std::move(b).build();
}

/// Pictures to compute on where no data are at hand: noise, with a bright stripe where the class says.
DataSet made_up(std::int64_t rows) {
  HostTensor image(f32, {rows, 24, 24, 3}), label(i32, {rows});
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < image.data<float>().size(); ++i) {
    state = state * 1664525 + 1013904223;
    image.data<float>()[i] = static_cast<float>(state >> 8) / (1 << 24) + (i / 3 % 24 / 2 == i / 1728 % 10 ? 1.0f : -0.5f);
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) label.data<std::int32_t>()[r] = static_cast<std::int32_t>(r % 10);
  return {{{"image", std::move(image)}, {"label", std::move(label)}}};
}

int main(int argc, char** argv) {
  DataSet data = argc < 2 ? made_up(1280) : cifar10(argv[1]).train;
  Session session(train_graph(data.rows()), Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0), .combine = Combine::tower_mean});
  fit(session, data, {.batch = kGpus * kBatchOfTower, .steps = 60, .shuffle = 1, .last_batch = LastBatch::runs_on, .checkpoints = "checkpoints", .checkpoint_every = 30});
  AveragesInPlace averages(session);  // the evaluation program restores the shadow variables
  std::printf("cross entropy with averages %.1f\n", evaluate(session, data).at("cross_entropy"));
  const auto kept = std::filesystem::directory_iterator("checkpoints");
  std::printf("checkpoints kept: %d\n", static_cast<int>(std::distance(begin(kept), end(kept))));
}
