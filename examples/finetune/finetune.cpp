// Fine-tunes a MobileNetV2 that knows ImageNet to tell two classes of photos apart: the whole net, or with its extractor frozen.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include <belfry/belfry.h>
#include <belfry/frontends/data/image_folder.h>
#include <belfry/frontends/nn/nets/nets.h>

using namespace belfry;

namespace {

constexpr const char* kUsage =
    "usage: finetune PHOTOS WEIGHTS [--frozen] [--towers N] [--epochs N] [--batch N] [--image N] [--seed N] [--save FILE]\n"
    "  PHOTOS    a folder with train/CLASS/*.jpg and val/CLASS/*.jpg of two classes\n"
    "  WEIGHTS   MobileNetV2 without its top, alpha 0.35, as safetensors with Keras's names; or what --save wrote, to go on with another choice\n"
    "  --frozen  trains the head alone;  --towers 1  --epochs 10  --batch 16 of each tower, 32 of a single one  --image 224 pixels  --seed 0\n";

struct Choices {
  std::string photos, weights, save;
  bool frozen = false;
  std::int64_t towers = 1, epochs = 10, batch = 0, image = 224, seed = 0;
};

Choices read(int argc, char** argv) {
  Choices out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    std::int64_t* number = nullptr;
    using Option = std::pair<const char*, std::int64_t*>;
    for (const auto& [name, field] : {Option{"--towers", &out.towers}, {"--epochs", &out.epochs}, {"--batch", &out.batch}, {"--image", &out.image}, {"--seed", &out.seed}})
      if (word == name) number = field;
    if (word == "--frozen") out.frozen = true;
    else if (word == "--save" && i + 1 < argc) out.save = argv[++i];
    else if (number && i + 1 < argc) {
      const std::string_view text = argv[++i];
      if (std::from_chars(text.data(), text.data() + text.size(), *number).ptr != text.data() + text.size() || *number < (number != &out.seed)) throw std::invalid_argument(kUsage);
    } else if (!word.starts_with("--") && out.photos.empty()) out.photos = word;
    else if (!word.starts_with("--") && out.weights.empty()) out.weights = word;
    else throw std::invalid_argument(kUsage);
  }
  if (out.weights.empty()) throw std::invalid_argument(kUsage);
  if (!out.batch) out.batch = out.towers == 1 ? 32 : 16;
  return out;
}

/// Features of the extractor, a hidden layer, and one logit: above 0 it is the second class.
Graph net(const Choices& c, std::int64_t steps_per_epoch) {
  Builder b("finetune");
  Value image = b.input("image", f32, {kBatch, c.image, c.image, 3}), label = b.input("label", i32, {kBatch});
  Value x = global_avg_pool2d(nn::mobilenet_v2(image, {.alpha = 0.35, .include_top = false, .trainable = !c.frozen}));
  x = nn::dropout(nn::dense(x, {.units = 512, .activation = Activation::relu}), {.rate = 0.5});
  Value logit = squeeze(nn::dense(x, {.units = 1, .name = "logit"}), {1});
  b.metric("accuracy", mean(equal(greater(logit, constant_like(logit, 0)), greater(label, constant_like(label, 0)))));
  // A stair an epoch: up to the sixth of ten, then down again. The peak grows with the towers.
  const std::int64_t stair = std::max<std::int64_t>(steps_per_epoch * c.epochs / 10, 1);
  Value rate = epoch_ramp(b.step(), {.epoch_steps = stair, .start = 1e-5, .most = scaled_rate(5e-5, static_cast<double>(c.towers)), .least = 1e-5, .factor = 0.8, .up = 5});
  b.minimize(identity(mean(binary_cross_entropy(logit, label, {.from_logits = true})), "loss"), Adam{.learning_rate = rate});
  return std::move(b).build();
}

void finetune(const Choices& c) {
  const ImageFolderOptions size{.height = c.image, .width = c.image};
  const ImageFolder train = image_folder(c.photos + "/train", size), val = image_folder(c.photos + "/val", size);
  if (train.classes.size() != 2 || train.classes != val.classes) throw UserError("two classes are told apart here, the same in train/ and val/");
  const std::int64_t batch = c.batch * c.towers;
  std::vector<DeviceId> devices;
  for (int i = 0; i < c.towers; ++i) devices.push_back(cpu(i));
  const std::int64_t steps = (train.data.rows() + batch - 1) / batch;  // of an epoch
  Session session(net(c, steps), Towers{.devices = devices}, {.seed = static_cast<std::uint64_t>(c.seed)});
  session.load_weights(c.weights, {.strict = false});  // the extractor, by name; a head that is not among them keeps its initial values
  for (std::int64_t epoch = 1; epoch <= c.epochs; ++epoch) {
    Metrics mean;
    double rate = 0, seconds = 0;
    auto add = [&](const Progress& p) {
      for (const auto& [name, value] : p.last) mean[name] += value / static_cast<double>(steps);
      rate = p.learning_rate.value_or(0);
    };
    // Every batch is a full one, as those of tf.data's shuffle().repeat().batch(): an epoch is so many steps.
    const FitOptions options{.batch = batch, .steps = steps, .shuffle = static_cast<std::uint64_t>(c.seed), .last_batch = LastBatch::runs_on, .on_batch = add, .learning_rate = true};
    for (const EpochResult& part : fit(session, train.data, options)) seconds += part.seconds;
    const Metrics held_out = evaluate(session, val.data);
    std::printf("epoch %2ld/%ld  %5.1f s  rate %.2e  loss %.4f  accuracy %.4f  validation: loss %.4f  accuracy %.4f\n", static_cast<long>(epoch), static_cast<long>(c.epochs), seconds, rate,
                mean.at("loss"), mean.at("accuracy"), held_out.at("loss"), held_out.at("accuracy"));
    std::fflush(stdout);
  }
  const double accuracy = evaluate(session, val.data).at("accuracy");
  std::printf("validation accuracy %.2f %% of %ld photos\n", 100 * accuracy, static_cast<long>(val.data.rows()));
  if (!c.save.empty()) write_safetensors(c.save, session.weights());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    finetune(read(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
