// Files of dnn-partitioning cut over their devices: objective, bound, seconds and memory, a child process per file: cutting FOLDER|FILE… [--latency]
// Each split is given to the folder's check_split.py.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/json/cut_file.h>
#include <belfry/placer/cut/cut.h>

using namespace belfry;
namespace fs = std::filesystem;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

/// What check_split.py says of it.
int check(const fs::path& file, const CutProblem& p, const Cut& c) {
  const fs::path script = file.parent_path() / "check_split.py", split = fs::temp_directory_path() / fmt::format("split-{}.json", ::getpid());
  if (!fs::exists(script)) return 0;
  write_file(split.string(), write_cut(p, c.device));
  fmt::print("    check_split.py: ");
  std::fflush(stdout);
  const int status = std::system(fmt::format("python3 '{}' '{}' '{}'", script.string(), file.string(), split.string()).c_str());
  fs::remove(split);
  return status;
}

int measure(const fs::path& file, CutObjective objective) {
  const auto start = std::chrono::steady_clock::now();
  CutProblem p = read_cut_problem(read_file(file.string()), file.string());
  p.objective = objective;
  const double read = seconds_since(start);
  const Cut c = cut(p);
  const double all = seconds_since(start);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("{:34} {:5} nodes  {} {:.7f}  bound {:.7f}{}  {:.3f} s, of it reading {:.3f}, {} MiB\n", file.stem().string(), p.nodes.size(), to_string(objective), c.value, c.bound,
             c.optimal() ? " (optimal)" : "", all, read, usage.ru_maxrss / 1024);
  return objective == CutObjective::max_load ? check(file, p, c) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  CutObjective objective = CutObjective::max_load;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--latency") objective = CutObjective::latency;
    else if (!fs::is_directory(argv[i])) files.emplace_back(argv[i]);
    else
      for (const auto& entry : fs::directory_iterator(argv[i]))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const int status = measure(file, objective);
      std::fflush(stdout);
      _exit(status ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) return 1;
  }
}
