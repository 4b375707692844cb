// Arenas of buffers with known lifetimes: arena FOLDER [STEPS]. Every *.LIMIT.csv of the folder with columns id, lower, upper (live in
// [lower, upper)), size: the peak that was found beside its limit and the bound that none can be below, and the time.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <belfry/graph/plan/offsets.h>

using namespace belfry;

namespace {

std::vector<Block> read_blocks(const std::filesystem::path& file) {
  std::vector<Block> out;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::stringstream fields(line);
    std::string id;
    std::getline(fields, id, ',');
    Block b;
    char comma = 0;
    if (fields >> b.start >> comma >> b.end >> comma >> b.size) --b.end, out.push_back(b);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "arena FOLDER [STEPS]\n");
    return 2;
  }
  const std::int64_t steps = argc > 2 ? std::stoll(argv[2]) : 2'000'000;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const std::vector<Block> blocks = read_blocks(file);
    const std::int64_t limit = std::stoll(file.stem().extension().string().substr(1));
    auto seconds_of = [&](std::int64_t budget, Packing& out) {
      auto start = std::chrono::steady_clock::now();
      out = pack(blocks, limit, budget);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    Packing greedy, best;
    seconds_of(0, greedy);
    double seconds = seconds_of(steps, best);
    fmt::print("{}: {} buffers, bound {}, limit {}, greedy {} ({:.3f} of the limit), found {} ({:.3f}) in {:.3f} s\n", file.stem().stem().string(), blocks.size(), best.bound, limit, greedy.peak,
               static_cast<double>(greedy.peak) / static_cast<double>(limit), best.peak, static_cast<double>(best.peak) / static_cast<double>(limit), seconds);
  }
}
