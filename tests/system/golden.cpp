#include "golden.h"

#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>

#include <belfry/frontends/data/mnist.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry::test {

namespace {

/// The largest share of a tolerance that the running test used.
double worst = 0;

struct Shares : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { worst = 0; }
  void OnTestEnd(const testing::TestInfo&) override {
    if (worst > 0) std::cout << "  used " << worst << " of a tolerance at most\n";
  }
};
const bool kListening = (testing::UnitTest::GetInstance()->listeners().Append(new Shares), true);

}  // namespace

testing::AssertionResult within(double got, double wanted, double tolerance) {
  const double distance = std::abs(got - wanted);
  worst = std::max(worst, distance == 0 ? 0 : distance / tolerance);
  if (kListening && distance <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got << " is " << distance << " from " << wanted << ", more than " << tolerance << ": ";
}

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

std::vector<double> numbers(const HostTensor& t) {
  HostTensor wide = converted(t, f64);
  auto x = wide.data<double>();
  return {x.begin(), x.end()};
}

}  // namespace

HostTensor sines(const Extents& shape) {
  HostTensor out(f32, shape);
  for (std::size_t i = 0; i < out.data<float>().size(); ++i) out.data<float>()[i] = static_cast<float>(std::sin(0.001 * static_cast<double>(i)));
  return out;
}

double norm(const HostTensor& t) {
  double sum = 0;
  for (double x : numbers(t)) sum += x * x;
  return std::sqrt(sum);
}

double number(const Results& results, const std::string& name) { return converted(results[name], f64).item<double>(); }

double largest(const HostTensor& t) {
  double out = 0;
  for (double x : numbers(t)) out = std::max(out, std::abs(x));
  return out;
}

double difference(const HostTensor& a, const HostTensor& b, double factor, bool sampled) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::vector<double> x = numbers(a), y = numbers(b);
  const std::size_t step = sampled ? kSampleStep : 1, count = y.size();
  if (sampled ? (x.size() + step - 1) / step != count : a.shape() != b.shape()) return kInfinite;
  double out = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double d = std::abs(factor * x[i * step] - y[i]);
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

void expect_gradients(const Results& got, const TensorMap& want, const std::string& prefix, double factor, double tolerance, double floor) {
  for (const auto& [entry, gradient] : want) {
    if (!entry.starts_with(prefix)) continue;
    EXPECT_TRUE(within(difference(got["gradient/" + variable_of(entry.substr(prefix.size()))], gradient, factor, is_sample(entry)), 0, std::max(floor, tolerance * largest(gradient)))) << entry;
  }
}

void expect_probe(const Results& got, const nlohmann::json& probe) {
  EXPECT_TRUE(within(number(got, "loss"), probe["loss"], 2e-6 * probe["loss"].get<double>()));
  for (const auto& [name, gradient] : probe["grads"].items()) expect_tensor(got["gradient/" + name], gradient, 2e-5, name);
}

void expect_tensor(const HostTensor& got, const nlohmann::json& want, double tolerance, const std::string& what, double floor) {
  auto first = want["first8"].get<std::vector<double>>();
  std::vector<double> mine = numbers(got);
  const double most = largest(got), l2 = want["l2"].get<double>();
  ASSERT_GE(mine.size(), first.size()) << what;
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(within(mine[i], first[i], tolerance * most + floor)) << what << " element " << i;
  EXPECT_TRUE(within(norm(got), l2, tolerance * l2 + floor)) << what;
}

void expect_loss(double got, double want, double spread, std::size_t step) { EXPECT_TRUE(within(got, want, 4 * spread + 3e-6 * std::max(1.0, std::abs(want)))) << "step " << step; }

void expect_norms(const State& state, const nlohmann::json& want, const nlohmann::json& other_run, double tolerance) {
  for (const auto& [name, value] : want.items()) {
    double l2 = value["l2"].get<double>(), other = other_run[name]["l2"].get<double>();
    EXPECT_TRUE(within(norm(state.at(name)), l2, tolerance * l2 + std::abs(l2 - other))) << name;
  }
}

Graph graph_of(const char* name, const Settings& settings) { return net_named(name).build(std::make_shared<const OpSet>(standard_ops()), settings); }
GoldenPlace& golden_place() {
  static GoldenPlace place;
  return place;
}

Strategy towers(int count) { return to_strategy(Towers{.devices = parse_devices(golden_place().devices), .variables = golden_place().variables, .towers = count}); }

TensorMap in_dtype(TensorMap tensors, DType dtype) {
  for (auto& [name, value] : tensors) value = converted(value, dtype);
  return tensors;
}

Session by_references(Graph graph) {
  auto library = std::make_shared<Library>(*standard_library());
  library->kernels = {{"cpu", KernelTable{}}};
  return Session(std::move(graph), Single{}, {.library = library});
}

}  // namespace belfry::test
