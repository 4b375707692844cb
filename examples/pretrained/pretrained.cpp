// Graphs that ask MobileNetV2's 1000 ImageNet classes about photos of pets, for `belfry evaluate`: is it a cat or a dog, and which breed?
#include <cstdio>
#include <filesystem>
#include <map>

#include <belfry/belfry.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/graph_file.h>
#include <belfry/frontends/nn/nets/nets.h>

using namespace belfry;
namespace fs = std::filesystem;

namespace {

constexpr const char* kUsage =
    "usage: pretrained WEIGHTS PHOTOS OUT\n"
    "  WEIGHTS  a folder with mobilenet_v2_1.0_224_bn_folded.safetensors and mobilenet_v2_1.0_224_bn_calibrated.safetensors\n"
    "  PHOTOS   train/KIND/BREED_number.jpg and val/KIND/BREED_number.jpg\n"
    "  OUT      where two graphs, their weights and links to photos by breed go\n";

/// ImageNet's number of each breed that is one of its classes; the second counts too.
const std::map<std::string, std::pair<std::int32_t, std::int32_t>> kBreeds = {
    {"Egyptian_Mau", {285, 285}}, {"Persian", {283, 283}}, {"Siamese", {284, 284}}, {"basset_hound", {161, 161}}, {"beagle", {162, 162}}, {"boxer", {242, 242}},
    {"chihuahua", {151, 151}},
    {"english_cocker_spaniel", {219, 219}}, {"english_setter", {212, 212}}, {"german_shorthaired", {210, 210}}, {"great_pyrenees", {257, 257}}, {"japanese_chin", {152, 152}},
    {"keeshond", {261, 261}}, {"leonberger", {255, 255}}, {"miniature_pinscher", {237, 237}}, {"newfoundland", {256, 256}}, {"pomeranian", {259, 259}}, {"pug", {254, 254}},
    {"saint_bernard", {247, 247}}, {"samoyed", {258, 258}}, {"scottish_terrier", {199, 199}}, {"staffordshire_bull_terrier", {179, 180}}, {"wheaten_terrier", {202, 202}},
    {"yorkshire_terrier", {187, 187}}};

/// Which is more probable, all kinds of cats or all kinds of dogs; labels: cat 0, dog 1.
Graph cat_or_dog() {
  Builder b("cat_or_dog");
  Value image = b.input("image", f32, {kBatch, 224, 224, 3}), label = b.input("label", i32, {kBatch});
  Value probability = softmax(nn::mobilenet_v2(image));
  Value cat = reduce_sum(strided_slice(probability, {0, 281}, {kToEnd, 286}), {.axes = {1}});
  Value dog = reduce_sum(strided_slice(probability, {0, 151}, {kToEnd, 269}), {.axes = {1}});
  b.metric("accuracy", mean(equal(greater(dog, cat), equal(label, constant_like(label, 1)))));
  return std::move(b).build();
}

/// Whether the breed is the first of the 1000 classes, or among the first five; labels: the breeds by name.
Graph breeds() {
  Builder b("breeds");
  Value image = b.input("image", f32, {kBatch, 224, 224, 3}), label = b.input("label", i32, {kBatch});
  Value logits = nn::mobilenet_v2(image);
  std::vector<std::int32_t> first, second;
  for (const auto& [name, numbers] : kBreeds) first.push_back(numbers.first), second.push_back(numbers.second);
  const auto count = static_cast<std::int64_t>(first.size());
  Value one = gather(constant(b.graph(), HostTensor::of<std::int32_t>({count}, first)), label), other = gather(constant(b.graph(), HostTensor::of<std::int32_t>({count}, second)), label);
  b.metric("accuracy", mean(logical_or(equal(argmax(logits), one), equal(argmax(logits), other))));
  b.metric("top_5", mean(logical_or(in_top_k(one, logits, 5), in_top_k(other, logits, 5))));
  return std::move(b).build();
}

/// Kernels of the folded file, batch normalisation of the calibrated one.
State weights(const fs::path& folder) {
  State out;
  for (auto& [name, value] : read_safetensors(folder / "mobilenet_v2_1.0_224_bn_folded.safetensors"))
    if (!name.ends_with("/bias") || name == "predictions/bias") out.emplace(name, value);
  out.merge(read_safetensors(folder / "mobilenet_v2_1.0_224_bn_calibrated.safetensors"));
  return out;
}

/// PHOTOS/train|val/KIND/BREED_number.jpg, seen as OUT/train|val/BREED/BREED_number.jpg.
void link_by_breed(const fs::path& photos, const fs::path& out) {
  for (const char* part : {"train", "val"})
    for (const auto& file : fs::recursive_directory_iterator(photos / part)) {
      const std::string stem = file.path().stem().string(), breed = stem.substr(0, stem.rfind('_'));
      if (!file.is_regular_file() || !kBreeds.contains(breed)) continue;
      fs::create_directories(out / part / breed);
      fs::path link = out / part / breed / file.path().filename();
      fs::remove(link);
      fs::create_symlink(fs::absolute(file.path()), link);
    }
}

void prepare(const fs::path& weights_folder, const fs::path& photos, const fs::path& out) {
  make_folder(out);
  write_safetensors(out / "weights.safetensors", weights(weights_folder));
  write_file(out / "cat_or_dog.json", write_graph(cat_or_dog(), {}, "weights.safetensors"));
  write_file(out / "breeds.json", write_graph(breeds(), {}, "weights.safetensors"));
  link_by_breed(photos, out / "breeds");
  const std::string to = out.string();
  std::printf("belfry evaluate %s/cat_or_dog.json --data %s --split all --antialias\n", to.c_str(), photos.c_str());
  std::printf("belfry evaluate %s/breeds.json --data %s/breeds --split all --antialias\n", to.c_str(), to.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    prepare(argv[1], argv[2], argv[3]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
