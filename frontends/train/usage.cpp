#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include <belfry/frontends/train/usage_internal.h>

namespace belfry {

Usage usage_now() {
  Usage out;
  rusage r{};
  ::getrusage(RUSAGE_SELF, &r);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  out.cpu_seconds = seconds(r.ru_utime) + seconds(r.ru_stime);
  std::ifstream pages("/proc/self/statm");
  std::int64_t whole = 0, resident = 0;
  if (pages >> whole >> resident) out.memory_bytes = resident * ::sysconf(_SC_PAGESIZE);
  return out;
}

double cores_between(const Usage& from, const Usage& to) {
  const double wall = std::chrono::duration<double>(to.at - from.at).count();
  return (to.cpu_seconds - from.cpu_seconds) / std::max(wall, 1e-9);
}

}  // namespace belfry
