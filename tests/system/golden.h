// TensorFlow's results on the documents' nets, and the rules of their README.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/session.h>
#include <belfry/frontends/state/safetensors.h>

namespace belfry::test {

/// $BELFRY_SHARED, else where the build found it.
inline const std::filesystem::path kShared = std::getenv("BELFRY_SHARED") ? std::getenv("BELFRY_SHARED") : BELFRY_SHARED;

/// Where nets are trained: on two of the host's cores, unless a program says otherwise. `why`: there is no such place here.
struct GoldenPlace {
  std::string devices = "cpu:0,cpu:1", why = {};
  DeviceId variables = cpu(0);
  SessionOptions options = {};
};
GoldenPlace& golden_place();

#define NEED_SHARED(folder) \
  if (!golden_place().why.empty()) GTEST_SKIP() << golden_place().why; \
  if (!std::filesystem::exists(kShared / (folder))) GTEST_SKIP() << "the golden data '" << (folder) << "' are not beside the source tree"

/// |got − wanted| ≤ tolerance. With every test the largest share of a tolerance that it used is printed.
testing::AssertionResult within(double got, double wanted, double tolerance);

nlohmann::json expected(const std::string& name);
TensorMap tensors(const std::string& file);
/// The training rows of MNIST.
const DataSet& mnist_rows();

/// x[i] = sin(0.001·i), the files' picture.
HostTensor sines(const Extents& shape);
double largest(const HostTensor& t);
double norm(const HostTensor& t);
/// A scalar of f32 or f64.
double number(const Results& results, const std::string& name);
/// The largest difference of factor * a and b; infinite where shapes differ or a number is none. `sampled`: b is every 37th element.
double difference(const HostTensor& a, const HostTensor& b, double factor = 1, bool sampled = false);
/// The same for the variable that a file's entry names; "NAME.sample" holds every 37th element.
double difference(const State& state, const std::string& entry, const HostTensor& value);

/// "gradient/NAME" of every entry.
std::vector<std::string> gradient_fetches(const TensorMap& want);
/// Rule 1: at most 2e-5 of the tensor's largest value, or `floor`.
void expect_gradients(const Results& got, const TensorMap& want, const std::string& prefix = "", double factor = 1, double tolerance = 2e-5, double floor = 0);
/// The norm, and the first elements beside the largest, of what a file describes by "l2" and "first8"; differences up to `floor` pass.
void expect_tensor(const HostTensor& got, const nlohmann::json& want, double tolerance, const std::string& what, double floor = 1e-12);
/// Rule 1, for a probe: the loss, and each gradient's norm and first elements.
void expect_probe(const Results& got, const nlohmann::json& probe);
/// Rule 2.
void expect_loss(double got, double want, double spread, std::size_t step);
/// Norms of final values, to a relative tolerance and as far as TensorFlow's own runs part from each other.
void expect_norms(const State& state, const nlohmann::json& want, const nlohmann::json& other_run, double tolerance);
Graph graph_of(const char* name, const Settings& settings = {});
Strategy towers(int count);
TensorMap in_dtype(TensorMap tensors, DType dtype);
/// A session on one tower whose every op runs by its reference: sums in f64, rounded once.
Session by_references(Graph graph);

}  // namespace belfry::test
