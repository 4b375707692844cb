#include "golden.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <belfry/frontends/data/mnist.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry::test {

nlohmann::json expected(const std::string& name) { return nlohmann::json::parse(std::ifstream(kShared / "golden" / name)); }
TensorMap tensors(const std::string& file) { return read_safetensors(kShared / "golden" / file); }

const DataSet& mnist_rows() {
  static const DataSet train = mnist(kShared / "data/mnist").train;
  return train;
}

namespace {

const std::string kSample = ".sample";
constexpr std::size_t kSampleStep = 37;

bool is_sample(const std::string& entry) { return entry.ends_with(kSample); }
std::string variable_of(const std::string& entry) { return is_sample(entry) ? entry.substr(0, entry.size() - kSample.size()) : entry; }

double norm(std::span<const float> values) {
  double sum = 0;
  for (float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

}  // namespace

double largest(const HostTensor& t) {
  double out = 0;
  for (float x : t.data<float>()) out = std::max(out, std::abs(static_cast<double>(x)));
  return out;
}

double difference(const HostTensor& a, const HostTensor& b, double factor, bool sampled) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::size_t step = sampled ? kSampleStep : 1, count = b.data<float>().size();
  if (sampled ? (a.data<float>().size() + step - 1) / step != count : a.type() != b.type()) return kInfinite;
  double out = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double d = std::abs(factor * static_cast<double>(a.data<float>()[i * step]) - static_cast<double>(b.data<float>()[i]));
    out = std::isnan(d) ? kInfinite : std::max(out, d);
  }
  return out;
}

double difference(const State& state, const std::string& entry, const HostTensor& value) { return difference(state.at(variable_of(entry)), value, 1, is_sample(entry)); }

std::vector<std::string> gradient_fetches(const TensorMap& want) {
  std::vector<std::string> out;
  for (const auto& [entry, value] : want) out.push_back("gradient/" + variable_of(entry));
  return out;
}

void expect_gradients(const Results& got, const TensorMap& want, const std::string& prefix, double factor) {
  for (const auto& [entry, gradient] : want) {
    if (!entry.starts_with(prefix)) continue;
    EXPECT_LE(difference(got["gradient/" + variable_of(entry.substr(prefix.size()))], gradient, factor, is_sample(entry)), 2e-5 * largest(gradient)) << entry;
  }
}

void expect_probe(const Results& got, const nlohmann::json& probe) {
  EXPECT_LE(std::abs(got.item<float>("loss") - probe["loss"].get<double>()), 2e-6 * probe["loss"].get<double>());
  for (const auto& [name, gradient] : probe["grads"].items()) {
    auto mine = got.data<float>("gradient/" + name);
    auto first = gradient["first8"].get<std::vector<double>>();
    double most = largest(got["gradient/" + name]);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(mine[i], first[i], 2e-5 * most) << name << " element " << i;
    EXPECT_NEAR(norm(mine), gradient["l2"].get<double>(), 2e-5 * gradient["l2"].get<double>()) << name;
  }
}

void expect_loss(double got, double want, double spread, std::size_t step) {
  EXPECT_LE(std::abs(got - want), 4 * spread + 3e-6 * std::max(1.0, std::abs(want))) << "step " << step;
}

void expect_norms(const State& state, const nlohmann::json& want, const nlohmann::json& other_run, double tolerance) {
  for (const auto& [name, value] : want.items()) {
    double l2 = value["l2"].get<double>(), other = other_run[name]["l2"].get<double>();
    EXPECT_NEAR(norm(state.at(name).data<float>()), l2, tolerance * l2 + std::abs(l2 - other)) << name;
  }
}

Session by_references(Graph graph) {
  auto library = std::make_shared<Library>(*standard_library());
  library->kernels = {{"cpu", KernelTable{}}};
  return Session(std::move(graph), Single{}, {.library = library});
}

}  // namespace belfry::test
