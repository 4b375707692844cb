#include <belfry/frontends/cli/signals_internal.h>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace belfry {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};
std::atomic<int> noted = 0;
std::atomic<bool> says = true;
std::array<struct sigaction, kSignals.size()> before;
struct sigaction before_pipe;

std::atomic<std::int64_t> when = 0;
constexpr std::int64_t kOnceNanoseconds = 500'000'000;  // timeout and others send a signal to a process and to its group, which is one wish

std::int64_t now() {
  timespec t = {};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// Calls nothing that a handler may not.
void note(int signal) {
  if (noted) {
    if (now() - when < kOnceNanoseconds) return;
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  when = now();
  constexpr std::string_view kSaid = "\nthe training ends after this step, or this validation; once more ends it at once\n";
  noted = signal;
  const int error = errno;
  if (says) [[maybe_unused]] const auto written = write(STDERR_FILENO, kSaid.data(), kSaid.size());
  errno = error;
}

}  // namespace

EndsOnSignal::EndsOnSignal(bool quiet) {
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
  noted = 0;
  says = !quiet;
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &before_pipe);
  struct sigaction noting = {};
  noting.sa_handler = note;
  noting.sa_flags = SA_RESTART;
  for (std::size_t k = 0; k < kSignals.size(); ++k) {
    sigaction(kSignals[k], nullptr, &before[k]);
    if (before[k].sa_handler != SIG_IGN) sigaction(kSignals[k], &noting, nullptr);
  }
}

EndsOnSignal::~EndsOnSignal() {
  for (std::size_t k = 0; k < kSignals.size(); ++k) sigaction(kSignals[k], &before[k], nullptr);
  sigaction(SIGPIPE, &before_pipe, nullptr);
}

int EndsOnSignal::signal() const { return noted; }

std::string_view name_of_signal(int signal) { return signal == SIGTERM ? "SIGTERM" : "SIGINT"; }

}  // namespace belfry
