#include <belfry/frontends/data/fetch.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/sha256.h>
#include <belfry/graph/error.h>

extern char** environ;

namespace belfry {
namespace {

namespace fs = std::filesystem;

struct Ended {
  int status = 0;  ///< 127: there is no such program
  std::string words;
};

/// Runs a program of the path; what it says on standard error is kept.
Ended run_program(std::vector<std::string> words) {
  int ends[2];
  if (::pipe(ends) != 0) throw UserError(fmt::format("[data] no pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Ended out;
  char buffer[512];
  for (ssize_t n; !failed && ((n = ::read(ends[0], buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR));) out.words.append(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  ::close(ends[0]);
  int status = 0;
  if (failed) out.status = 127;
  else {
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  while (!out.words.empty() && std::isspace(static_cast<unsigned char>(out.words.back()))) out.words.pop_back();
  return out;
}

/// What is wrong with a file; empty where it is the published one.
std::string fault_of(const fs::path& path, const PublishedFile& wanted) {
  const MappedFile file(path);
  if (static_cast<std::int64_t>(file.bytes().size()) != wanted.bytes) return fmt::format("{} bytes, not {}", file.bytes().size(), wanted.bytes);
  if (const std::string found = sha256(file.bytes()); found != wanted.sha256) return fmt::format("sha256 {}, not {}", found, wanted.sha256);
  return "";
}

/// From one address into `path`; what went wrong, or nothing.
std::string fetch_from(const std::string& url, const PublishedFile& file, const fs::path& path) {
  const Ended curl = run_program({"curl", "--fail", "--location", "--silent", "--show-error", "--proto", "=http,https", "--connect-timeout", "20", "--max-filesize", std::to_string(file.bytes), "--output", path.string(), url});
  if (curl.status == 127) throw UserError("[data] the program curl, which fetches files, is not here; install it");
  if (curl.status != 0) return curl.words.empty() ? fmt::format("curl ended with {}", curl.status) : curl.words;
  std::error_code error;
  return fs::exists(path, error) ? fault_of(path, file) : "nothing came";
}

void fetch_file(const PublishedFile& file, const fs::path& dir, const std::function<void(const std::string&)>& say) {
  const fs::path path = dir / file.name, partial = path.string() + partial_suffix();
  std::string reasons;
  for (const std::string& url : file.urls) {
    say(fmt::format("fetching {}", url));
    const std::string wrong = fetch_from(url, file, partial);
    std::error_code error;
    if (wrong.empty()) {
      fs::rename(partial, path, error);
      if (!error) return;
      throw UserError(fmt::format("{}: cannot be renamed to: {}", path.string(), error.message()));
    }
    fs::remove(partial, error);
    reasons += fmt::format("\n  {}: {}", url, wrong);
  }
  throw UserError(fmt::format("{} cannot be had:{}\nIs there a network here, and a proxy in https_proxy if it needs one? A file of {} bytes with sha256 {} that is put at {} by hand does as well.", file.name, reasons, file.bytes,
                              file.sha256, path.string()));
}

const char* const kMnist[] = {"https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"};
const char* const kFashion[] = {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"};

PublishedFile at(const char* const (&roots)[2], const char* name, std::int64_t bytes, const char* sum) {
  PublishedFile out{name, bytes, sum, {}};
  for (const char* root : roots) out.urls.push_back(std::string(root) + name);
  return out;
}

}  // namespace

const std::vector<PublishedSet>& published_sets() {
  static const std::vector<PublishedSet> sets = {
      {"mnist", "handwritten digits: 60,000 and 10,000 of 28 x 28",
       {at(kMnist, "train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        at(kMnist, "train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        at(kMnist, "t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        at(kMnist, "t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6")}},
      {"fashion_mnist", "pieces of clothing, in the form of MNIST",
       {at(kFashion, "train-images-idx3-ubyte.gz", 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        at(kFashion, "train-labels-idx1-ubyte.gz", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        at(kFashion, "t10k-images-idx3-ubyte.gz", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        at(kFashion, "t10k-labels-idx1-ubyte.gz", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5")}},
      {"cifar10", "photos of ten classes: 50,000 and 10,000 of 32 x 32",
       {{"cifar-10-binary.tar.gz", 170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"}, true}}},
  };
  return sets;
}

void fetch_data(const PublishedSet& set, const fs::path& dir, const std::function<void(const std::string&)>& say) {
  make_folder(dir);
  for (const PublishedFile& file : set.files) {
    std::error_code error;
    if (fs::exists(dir / file.name, error) && fault_of(dir / file.name, file).empty()) say(fmt::format("{} is there already", (dir / file.name).string()));
    else fetch_file(file, dir, say);
    if (!file.unpack) continue;
    const Ended tar = run_program({"tar", "-xzf", (dir / file.name).string(), "-C", dir.string(), "--strip-components=1", "--no-same-owner"});
    if (tar.status != 0) throw UserError(fmt::format("{}: tar could not unpack it: {}", (dir / file.name).string(), tar.status == 127 ? "there is no program tar here" : tar.words));
  }
}

}  // namespace belfry
