// Nets that only infer: MobileNetV2's pretrained weights, and InceptionResNetV2 beside Keras.
#include "golden.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <belfry/belfry.h>
#include <belfry/frontends/data/image_folder.h>

namespace belfry::test {
namespace {

// ---------------------------------------------------------------- the pretrained net on photos

/// ImageNet's classes of the breeds that are any of them; the second is another that counts.
const std::map<std::string, std::pair<int, int>> kBreeds = {
    {"Siamese", {284, 284}}, {"Persian", {283, 283}}, {"Egyptian_Mau", {285, 285}}, {"samoyed", {258, 258}}, {"pug", {254, 254}}, {"saint_bernard", {247, 247}}, {"leonberger", {255, 255}},
    {"keeshond", {261, 261}}, {"pomeranian", {259, 259}}, {"miniature_pinscher", {237, 237}}, {"newfoundland", {256, 256}}, {"beagle", {162, 162}}, {"basset_hound", {161, 161}},
    {"english_setter", {212, 212}}, {"german_shorthaired", {210, 210}}, {"great_pyrenees", {257, 257}}, {"japanese_chin", {152, 152}}, {"scottish_terrier", {199, 199}},
    {"staffordshire_bull_terrier", {179, 180}}, {"wheaten_terrier", {202, 202}}, {"yorkshire_terrier", {187, 187}}, {"boxer", {242, 242}}, {"chihuahua", {151, 151}},
    {"english_cocker_spaniel", {219, 219}}};

/// The weights as Keras has them: kernels of the folded file, batch normalisation of the calibrated one.
State pretrained() {
  State out;
  for (auto& [name, value] : read_safetensors(kShared / "data/mobilenetv2/mobilenet_v2_1.0_224_bn_folded.safetensors"))
    if (!name.ends_with("/bias") || name == "predictions/bias") out.emplace(name, value);
  out.merge(read_safetensors(kShared / "data/mobilenetv2/mobilenet_v2_1.0_224_bn_calibrated.safetensors"));
  return out;
}

TEST(PretrainedMobileNet, knows_pets) {
  NEED_SHARED("data/mobilenetv2");
  NEED_SHARED("data/pets-cats-dogs");
  Session session(graph_of("mobilenet_v2"), towers(2), golden_place().options);
  session.load_state(pretrained());
  const std::string logits = session.graph().name_of(session.graph().outputs[0]);
  int top_1 = 0, top_5 = 0, known = 0, right_kind = 0, photos = 0;
  for (const char* part : {"train", "val"}) {
    ImageFolder folder = image_folder(kShared / "data/pets-cats-dogs" / part, {.antialias = true});  // as Pillow resizes
    for (std::int64_t first = 0; first < folder.data.rows(); first += 32) {
      DataSet rows = folder.data.slice(first, std::min<std::int64_t>(32, folder.data.rows() - first));
      Results r = session.predict(rows.columns, {logits});
      for (std::int64_t k = 0; k < rows.rows(); ++k) {
        auto z = r.data<float>(logits).subspan(static_cast<std::size_t>(k) * 1000, 1000);
        double cat = 0, dog = 0;
        for (std::size_t c = 151; c <= 268; ++c) dog += std::exp(static_cast<double>(z[c]));
        for (std::size_t c = 281; c <= 285; ++c) cat += std::exp(static_cast<double>(z[c]));
        ++photos;
        right_kind += (dog > cat) == (rows.columns.at("label").data<std::int32_t>()[static_cast<std::size_t>(k)] == 1);
        std::string name = std::filesystem::path(folder.files[static_cast<std::size_t>(first + k)]).stem().string();
        auto breed = kBreeds.find(name.substr(0, name.rfind('_')));
        if (breed == kBreeds.end()) continue;
        const float mine = std::max(z[static_cast<std::size_t>(breed->second.first)], z[static_cast<std::size_t>(breed->second.second)]);
        const auto above = std::count_if(z.begin(), z.end(), [&](float other) { return other > mine; });
        ++known;
        top_1 += above == 0;
        top_5 += above < 5;
      }
    }
  }
  std::cout << top_1 << " and " << top_5 << " of " << known << " breeds, cat or dog " << right_kind << " of " << photos << "\n";
  ASSERT_EQ(photos, 370);
  ASSERT_EQ(known, 240);
  // The README's 192, 234 and 358 are of NumPy on Pillow's pixels, which round to bytes between the two axes.
  EXPECT_TRUE(within(top_1, 192, 1));
  EXPECT_TRUE(within(top_5, 234, 1));
  EXPECT_TRUE(within(right_kind, 358, 1));
}

// ---------------------------------------------------------------- InceptionResNetV2

/// Values that follow from a variable's name, as the case's README has them.
HostTensor drawn_by_name(const std::string& name, const Extents& shape) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  double fan_in = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) fan_in *= static_cast<double>(shape[i]);
  HostTensor out(f32, shape);
  for (std::size_t i = 0; i < out.data<float>().size(); ++i) {
    std::uint64_t z = hash + i + 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    z ^= z >> 31;
    out.data<float>()[i] = static_cast<float>((2 * std::ldexp(static_cast<double>(z >> 11), -53) - 1) * std::sqrt(6 / fan_in));
  }
  return out;
}

TEST(InceptionResNetV2, infers_as_keras_does) {
  NEED_SHARED("golden/inceptionresnetv2_forward");
  nlohmann::json golden = expected("inceptionresnetv2_forward/expected.json");
  Builder b("inception");
  Value image = b.input("image", f32, {kBatch, 139, 139, 3});
  b.output(identity(nn::inception_resnet_v2(image), "predictions_out"));
  Session session(std::move(b).build(), Single{.device = golden_place().variables}, golden_place().options);
  State state = session.state();
  for (auto& [name, value] : state)
    if (name.ends_with("/kernel")) value = drawn_by_name(name, value.shape());
  for (const auto& worked : golden["worked_values"])
    EXPECT_FLOAT_EQ(state.at(worked["name"].get<std::string>()).data<float>()[worked["index"].get<std::size_t>()], worked["value"].get<float>());
  session.load_state(state);
  HostTensor x = sines({1, 139, 139, 3});
  std::map<std::string, std::string> mine = {{"max_pooling2d", "max_pool2d"}, {"max_pooling2d_1", "max_pool2d_1"}, {"avg_pool", "reduce_mean"}, {"predictions", "predictions_out"}};
  std::vector<std::string> fetches;
  for (const auto& [name, ignored] : golden["activations"].items()) fetches.push_back(mine.contains(name) ? mine.at(name) : name);
  Results r = session.predict({{"image", x}}, fetches);
  for (const auto& [name, value] : golden["activations"].items())
    if (name != "predictions") expect_tensor(r[mine.contains(name) ? mine.at(name) : name], value, 2e-5, name);
  auto logits = golden["logits"].get<std::vector<double>>();
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_TRUE(within(r.data<float>("predictions_out")[i], logits[i], 2e-4)) << i;
}

}  // namespace
}  // namespace belfry::test
