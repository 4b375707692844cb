#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>

#include <belfry/belfry.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/graph/plan/memory.h>

#include "says.h"

namespace belfry::test {
namespace {

/// What a command line says.
struct Told {
  std::string strategy, devices;
  std::map<std::string, std::string> options;
  std::int64_t batch = 0;
  int recompute = 0;
};

/// Layers of one width, each trained with a momentum.
Graph layers_of(int count, std::int64_t width) {
  Builder b("layers");
  Value h = b.input("x", f32, {kBatch, width});
  for (int k = 0; k < count; ++k) {
    auto scope = b.scope("layer" + std::to_string(k));
    h = relu(matmul(h, b.variable("w", {width, width}, {.init = "normal", .init_value = 0.3})));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::move(b).build();
}

/// The widest value is the first: no cut makes it smaller.
Graph pictures() {
  Builder b("pictures");
  Value h = b.input("x", f32, {kBatch, 12, 12, 3});
  for (int filters : {16, 8, 8}) h = nn::conv2d(h, {.filters = filters, .kernel = 3, .activation = Activation::relu});
  b.minimize(reduce_mean(square(nn::dense(flatten(h), {.units = 10}))), Adam{});
  return std::move(b).build();
}

Graph wide() { return layers_of(4, 32); }

/// A cluster of four sim devices with so many bytes each, and a host, which has as many or no limit.
Cluster limited(std::int64_t bytes, bool host = false, const char* sims = "sim:0-3") {
  Cluster c = local_cluster(parse_devices(sims), 2);
  for (ClusterDevice& d : c.devices)
    if (host || d.id.kind == "sim") d.memory = bytes;
  return c;
}

std::int64_t most_bytes(const Graph& net, const Told& t, std::int64_t limit) {
  SessionOptions options;
  options.cluster = limited(limit);
  options.recompute.stretches = t.recompute;
  Session session(net, standard_library()->strategy(t.strategy).make(parse_devices(t.devices), t.options), options);
  std::int64_t out = 0;
  for (const DeviceBytes& b : device_bytes(session.plan(t.batch))) out = std::max(out, b.total());
  return out;
}

/// The options named, put beside those that were given or in their place; those behind "without" are left out.
Told followed(Told t, const std::string& advice) {
  const std::size_t without = advice.find(", without ");
  std::istringstream in(advice.substr(0, without));
  for (std::string word, value; in >> word >> value;) {
    const std::size_t equal = value.find('=');
    if (word == "--towers") t.options["towers"] = value;
    else if (word == "--batch") t.batch = std::stoll(value);
    else if (word == "--recompute") t.recompute = std::stoi(value);
    else if (word == "--devices") t.devices = value;
    else if (word == "--strategy") t.strategy = value;
    else if (word == "-O" && equal != value.npos) t.options[value.substr(0, equal)] = value.substr(equal + 1);
    else ADD_FAILURE() << "advice of an unknown form: " << advice;
  }
  if (without == advice.npos) return t;
  std::istringstream gone(advice.substr(without + std::string(", without ").size()));
  for (std::string word, value; gone >> word >> value;)
    EXPECT_EQ(t.options.erase(word == "--towers" ? "towers" : word == "--threads-per-tower" ? "threads" : value.substr(0, value.find('='))), 1u) << advice;
  return t;
}

struct Seen {
  int refused = 0, advised = 0, followed = 0;
  std::set<std::string> kinds, strategies;
};

/// Follows each advice of a refusal: the plan takes as many bytes as it says.
void follow(const Graph& net, const Told& t, std::int64_t limit, Seen& seen) {
  const std::string message = message_of([&] { most_bytes(net, t, limit); });
  if (message == "(no error)") return;  // cut elsewhere, it fits
  ++seen.refused;
  seen.strategies.insert(t.strategy);
  ASSERT_NE(message.find("but has " + std::to_string(limit)), message.npos) << t.strategy << ": " << message;
  EXPECT_NE(message.find("most is held on sim:"), message.npos) << message;
  const std::string opening = "fits: ";
  const std::size_t begin = message.find(opening);
  if (begin == message.npos) {
    EXPECT_NE(message.find("that was tried fits"), message.npos) << message;
    return;
  }
  ++seen.advised;
  std::istringstream advice(message.substr(begin + opening.size()));
  for (std::string one; std::getline(advice >> std::ws, one, ';');) {
    const std::string options = one.substr(0, one.find(" (at most "));
    std::istringstream words(options);
    for (std::string word; words >> word;)
      if (word.starts_with("-") || word == "without") seen.kinds.insert(word);
    ++seen.followed;
    SCOPED_TRACE(t.strategy + " with " + std::to_string(limit) + " bytes: " + one);
    std::int64_t bytes = 0;
    EXPECT_EQ(message_of([&] { bytes = most_bytes(net, followed(t, options), limit); }), "(no error)");
    EXPECT_EQ(one.substr(0, one.find(", on ")), options + " (at most " + std::to_string(bytes) + " bytes");
  }
}

/// BELFRY_EXHAUSTIVE: more nets and more limits, down to where nothing fits.
TEST(MemoryAdvice, each_that_is_given_fits_when_it_is_followed) {
  const std::vector<Told> asked = {
      {"single", "sim:0", {{"threads", "1"}}, 64},
      {"towers", "sim:0-1", {{"threads", "1"}, {"variables", "sim:0"}}, 256},
      {"towers", "sim:0-1", {{"variables", "spread"}, {"combine", "tower_mean"}}, 64},
      {"mirrored", "sim:0-1", {{"threads", "1"}, {"buckets", "none"}}, 64},
      {"sharded", "sim:0-2", {}, 64},
      {"parameter_server", "sim:0-1", {{"servers", "sim:2"}}, 64},
      {"pipeline", "sim:0-1", {{"order", "gpipe"}, {"towers", "8"}}, 256},
      {"hybrid", "sim:0-3", {{"threads", "1"}, {"towers", "4"}}, 256},
      {"layers", "sim:0-1", {{"objective", "latency"}}, 512},
      {"auto", "sim:0-1", {{"threads", "1"}}, 128},
  };
  const bool all = std::getenv("BELFRY_EXHAUSTIVE");
  std::vector<std::function<Graph()>> nets = {wide};
  if (all) nets.insert(nets.end(), {pictures, [] { return layers_of(3, 128); }, [] { return layers_of(16, 16); }});
  Seen seen;
  for (const auto& net : nets)
    for (const Told& t : asked) {
      const Graph graph = net();
      const std::int64_t needed = most_bytes(graph, t, std::int64_t{1} << 40);
      for (double part : all ? std::vector<double>{0.95, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05} : std::vector<double>{0.8, 0.3})
        follow(graph, t, static_cast<std::int64_t>(part * static_cast<double>(needed)) / 64 * 64, seen);
    }
  std::cout << seen.refused << " refused, " << seen.advised << " of them with advice; " << seen.followed << " were followed: " << testing::PrintToString(seen.kinds) << "\n";
  EXPECT_GE(seen.strategies.size(), 9u);
  EXPECT_THAT(seen.kinds, testing::IsSupersetOf({"--batch", "--devices", "--recompute", "--strategy", "--towers", "-O", "without"}));
}

TEST(MemoryAdvice, is_given_for_a_struct_too) {
  SessionOptions options;
  options.cluster = limited(128 << 10);
  Session session(wide(), Mirrored{.devices = parse_devices("sim:0-1"), .threads = 1}, options);
  EXPECT_THAT(message_of([&] { session.plan(256); }),
              testing::AllOf(testing::HasSubstr("fits: --towers "), testing::HasSubstr("--strategy "), testing::HasSubstr("--batch "), testing::Not(testing::HasSubstr("without"))));
}

/// 37 rows are 9, 2 and then one, where nothing else fits.
TEST(MemoryAdvice, ends_with_a_batch_of_one) {
  const Graph graph = net_named("mnist_cnn").build(standard_library()->ops);
  EXPECT_THAT(message_of([&] { most_bytes(graph, {"pipeline", "sim:0-1", {{"order", "gpipe"}, {"towers", "4"}}, 37}, 600'000); }), testing::HasSubstr("--batch 1,"));
}

/// Weights and slots are more than the device has, whatever the batch.
TEST(MemoryAdvice, of_one_device_alone_has_its_host) {
  SessionOptions options;
  options.cluster = limited(12'000, false, "sim:0");
  auto planned = [&](const char* device) { Session(wide(), standard_library()->strategy("single").make(parse_devices(device), {}), options).plan(64); };
  EXPECT_THAT(message_of([&] { planned("sim:0"); }), testing::AllOf(testing::HasSubstr("fits: "), testing::HasSubstr("--devices cpu:0 (at most ")));
  EXPECT_EQ(message_of([&] { planned("cpu:0"); }), "(no error)");
}

TEST(MemoryAdvice, says_so_where_nothing_fits) {
  for (const char* strategy : {"single", "auto"}) {
    SessionOptions options;
    options.cluster = limited(64, true);
    const std::string said = message_of([&] { Session(wide(), standard_library()->strategy(strategy).make(parse_devices("sim:0"), {}), options).plan(8); });
    EXPECT_THAT(said, testing::AllOf(testing::HasSubstr("sim:0 needs"), testing::HasSubstr("w 4096"), testing::HasSubstr("that was tried fits"))) << strategy;
  }
}

}  // namespace
}  // namespace belfry::test
