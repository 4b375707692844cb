#include <gtest/gtest.h>

#include <array>

#include <belfry/executor/device/arena.h>
#include <belfry/executor/joins.h>

#include "says.h"

namespace belfry::test {
namespace {

TEST(Join, of_booleans_by_max_is_true_where_one_is_and_they_have_no_sum) {
  std::array<bool, 3> a{true, false, false}, b{false, false, true}, out{false, true, false};
  LocalType type{boolean, {3}};
  std::vector<JoinPart> parts{{0, 1, type, reinterpret_cast<const std::byte*>(a.data())}, {1, 2, type, reinterpret_cast<const std::byte*>(b.data())}};
  join("max", 0, 2, 2, parts, type, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::array<bool, 3>{true, false, true}));
  for (const char* how : {"sum", "mean"})
    EXPECT_TRUE(says([&] { join(how, 0, 2, 2, parts, type, reinterpret_cast<std::byte*>(out.data())); }, {std::string("booleans have no ") + how}));
}

TEST(Arena, that_finds_no_room_names_its_space_and_bytes) {
  EXPECT_TRUE(says<DeviceError>([] { Arena(std::int64_t{1} << 60, "sim:3"); }, {"1152921504606846976 bytes", "'sim:3'", "smaller batch"}));
}

}  // namespace
}  // namespace belfry::test
