#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include <belfry/graph/plan/vector_clock.h>

namespace belfry::test {
namespace {

TEST(VectorClock, of_any_width_holds_what_plain_numbers_do) {
  for (const int streams : {1, 16, 17, 256, 300, 5000}) {
    std::mt19937 rng(static_cast<unsigned>(streams));
    auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    std::vector<VectorClock> clocks(6, VectorClock(static_cast<std::size_t>(streams)));
    std::vector<std::vector<int>> plain(clocks.size(), std::vector<int>(static_cast<std::size_t>(streams)));
    for (int k = 0; k < 400; ++k) {
      const auto a = static_cast<std::size_t>(below(6)), b = static_cast<std::size_t>(below(6));
      const int stream = below(streams), number = plain[a][static_cast<std::size_t>(stream)] + below(3);
      switch (below(3)) {
        case 0: clocks[a].set(stream, number), plain[a][static_cast<std::size_t>(stream)] = number; break;
        case 1: clocks[a] = clocks[b], plain[a] = plain[b]; break;
        default:
          clocks[a].join(clocks[b]);
          for (std::size_t s = 0; s < plain[a].size(); ++s) plain[a][s] = std::max(plain[a][s], plain[b][s]);
      }
      for (int probe = 0; probe < 20; ++probe) {
        const int s = probe ? below(streams) : streams - 1;
        for (std::size_t c : {a, b}) ASSERT_EQ(clocks[c].at(s), plain[c][static_cast<std::size_t>(s)]) << streams << " streams, " << k;
      }
    }
    for (std::size_t c = 0; c < clocks.size(); ++c)
      for (int s = 0; s < streams; ++s) ASSERT_EQ(clocks[c].at(s), plain[c][static_cast<std::size_t>(s)]);
  }
}

}  // namespace
}  // namespace belfry::test
