#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <belfry/frontends/cli/cli.h>

/// How long threads of OpenMP spin while they wait is read before main begins: on a busy machine as long as GNU's runtime does by default is many times the
/// work itself. So the program begins once more, unless its user has said how long.
static void spin_less(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  if (!getauxval(AT_BASE)) return;  // the loader was called by name, and is what /proc/self/exe names
  setenv("GOMP_SPINCOUNT", "10000", 1);
  execv("/proc/self/exe", argv);  // comes back only where that fails
}

/// A file that is opened first would get the number of a stream that is closed, and words and results for its lines. What is written here fails, as to the closed one.
static void keep_streams() {
  for (int fd : {0, 1, 2})
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char** argv) {
  keep_streams();
  spin_less(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // writing over a limit of size is then an error, which is told
  return belfry::cli_main(argc, argv);
}
