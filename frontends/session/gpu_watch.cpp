#include <belfry/frontends/session/gpu_watch.h>

#include <chrono>
#include <cstddef>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/error.h>

namespace belfry {

namespace {

constexpr std::chrono::milliseconds kApart{20};  // the driver's own periods are longer
constexpr std::size_t kMost = 1 << 20;

}  // namespace

GpuWatch::GpuWatch(std::unique_ptr<GpuMeter> meter) : meter_(std::move(meter)) {
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error& e) {
    throw UserError(fmt::format("no thread can be started to read their meter ({}); raise the limit of this process (ulimit -u)", e.what()));
  }
}

void GpuWatch::watch() {
  std::unique_lock lock(mutex_);
  do {
    if (readings_.size() < kMost) meter_->read(readings_);
  } while (!ends_.wait_for(lock, kApart, [this] { return ended_; }));
}

GpuWatch::~GpuWatch() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

std::vector<GpuReading> GpuWatch::readings() {
  std::lock_guard lock(mutex_);
  meter_->read(readings_);
  return readings_;
}

}  // namespace belfry
