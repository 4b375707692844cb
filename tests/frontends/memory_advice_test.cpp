#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <belfry/belfry.h>
#include <belfry/graph/plan/memory.h>

#include "nets.h"

namespace belfry::test {
namespace {

/// What a command line says.
struct Told {
  std::string strategy, devices;
  std::map<std::string, std::string> options;
  std::int64_t batch = 0;
};

Graph wide() {
  Builder b("wide");
  Value h = b.input("x", f32, {kBatch, 32});
  for (const char* name : {"a", "b", "c", "d"}) {
    auto scope = b.scope(name);
    h = relu(matmul(h, b.variable("w", {32, 32}, {.init = "normal", .init_value = 0.3})));
  }
  b.minimize(reduce_mean(square(h)), Momentum{.learning_rate = 0.1});
  return std::move(b).build();
}

/// A cluster of four sim devices with so many bytes each, and a host.
Cluster limited(std::int64_t bytes) {
  Cluster c = local_cluster(parse_devices("sim:0-3"), 2);
  for (ClusterDevice& d : c.devices)
    if (d.id.kind == "sim") d.memory = bytes;
  return c;
}

std::int64_t most_bytes(const Told& t, std::int64_t limit) {
  SessionOptions options;
  options.cluster = limited(limit);
  Session session(wide(), standard_library()->strategy(t.strategy).make(parse_devices(t.devices), t.options), options);
  std::int64_t out = 0;
  for (const DeviceBytes& b : device_bytes(session.plan(t.batch))) out = std::max(out, b.total());
  return out;
}

/// The options named, put over those that were given.
Told followed(Told t, const std::string& advice) {
  std::istringstream in(advice);
  for (std::string word, value; in >> word >> value;) {
    if (word == "--towers") t.options["towers"] = value;
    else if (word == "--batch") t.batch = std::stoll(value);
    else if (word == "--devices") t.devices = value;
    else if (word == "--strategy") t.strategy = value, t.options = {{"threads", "1"}};
    else if (word == "-O") t.options[value.substr(0, value.find('='))] = value.substr(value.find('=') + 1);
    else ADD_FAILURE() << "advice of an unknown form: " << advice;
  }
  return t;
}

TEST(MemoryAdvice, each_that_is_given_fits_when_it_is_followed) {
  const std::vector<Told> asked = {
      {"single", "sim:0", {{"threads", "1"}}, 64},
      {"towers", "sim:0-1", {{"threads", "1"}, {"variables", "sim:0"}}, 256},
      {"mirrored", "sim:0-1", {{"threads", "1"}}, 64},
      {"pipeline", "sim:0-1", {{"threads", "1"}, {"order", "gpipe"}, {"towers", "8"}}, 256},
      {"layers", "sim:0-1", {{"threads", "1"}}, 512},
  };
  std::set<std::string> kinds, refused;
  for (const Told& t : asked) {
    const std::int64_t needed = most_bytes(t, std::int64_t{1} << 40);
    for (double part : {0.95, 0.7, 0.45}) {
      const auto limit = static_cast<std::int64_t>(part * static_cast<double>(needed)) / 64 * 64;
      std::string message;
      try {
        most_bytes(t, limit);
      } catch (const UserError& e) {
        message = e.what();
      }
      if (message.empty() && (t.strategy == "layers" || t.strategy == "pipeline")) continue;  // cut elsewhere, it fits
      refused.insert(t.strategy);
      ASSERT_NE(message.find("but has " + std::to_string(limit)), message.npos) << t.strategy << ": " << message;
      EXPECT_NE(message.find("most is held on sim:"), message.npos) << message;
      const std::string opening = "each of these fits: ";
      const std::size_t begin = message.find(opening);
      if (begin == message.npos) {
        EXPECT_NE(message.find("that was tried fits"), message.npos) << message;
        continue;
      }
      std::istringstream advice(message.substr(begin + opening.size()));
      for (std::string one; std::getline(advice >> std::ws, one, ';');) {
        const std::string options = one.substr(0, one.find(" (at most "));
        kinds.insert(options.substr(0, options.find(' ')));
        EXPECT_EQ(one.substr(0, one.find(", on ")), options + " (at most " + std::to_string(most_bytes(followed(t, options), limit)) + " bytes") << t.strategy << " with " << limit << " bytes";
      }
    }
  }
  EXPECT_EQ(refused.size(), asked.size());
  EXPECT_EQ(kinds, (std::set<std::string>{"--batch", "--strategy", "--towers", "-O"}));
}

TEST(MemoryAdvice, says_so_where_nothing_fits) {
  try {
    most_bytes({"single", "sim:0", {}, 8}, 64);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("sim:0 needs"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("w 4096"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace belfry::test
