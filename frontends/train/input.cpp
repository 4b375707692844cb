#include <algorithm>
#include <system_error>
#include <utility>

#include <belfry/frontends/train/input_internal.h>

namespace belfry {
namespace {

constexpr int kJudged = 8;              // batches before a thread is thought of
constexpr double kWorthAThread = 0.01;  // of the time
constexpr int kDeepest = 64;
constexpr std::size_t kMostBytes = std::size_t{1} << 28;  // of batches made ahead

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Input::~Input() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Input::Columns& Input::next() {
  const Clock::time_point asked = Clock::now();
  if (!thread_.joinable() && calls_++) used_ += seconds(asked - returned_);
  if (has_ahead_) {
    std::swap(current_, ahead_);
    has_ahead_ = false;
  } else if (thread_.joinable()) {
    take(current_);
  } else {
    current_.after = make_(current_.columns);
  }
  position_ = current_.after;
  returned_ = Clock::now();
  const double took = seconds(returned_ - asked);
  waited_ += took;
  if (thread_.joinable()) return current_.columns;
  made_ += took;
  if (calls_ == 1) made_ = 0;  // the first one makes its tensors, and the step after it the program
  if (calls_ == 2) used_ = 0;
  if (calls_ >= kJudged && made_ > kWorthAThread * (made_ + used_)) {
    depth_ = 2;
    try {
      thread_ = std::thread([this] { produce(); });
    } catch (const std::system_error&) {  // the process has as many as it may have
      depth_ = calls_ = 0, made_ = used_ = 0;
    }
  }
  return current_.columns;
}

const Input::Columns& Input::ahead() {
  if (has_ahead_) return ahead_.columns;
  const Clock::time_point asked = Clock::now();
  if (thread_.joinable()) {
    take(ahead_);
  } else {
    ahead_.after = make_(ahead_.columns);
    const Clock::duration took = Clock::now() - asked;
    made_ += seconds(took);
    returned_ += took;  // that time was not used by a step
  }
  has_ahead_ = true;
  return ahead_.columns;
}

void Input::take(Slot& into) {
  std::unique_lock lock(mutex_);
  spare_.push_back(std::move(into));
  if (ready_.empty() && was_full_) {
    std::size_t bytes = 1;
    for (const auto& [name, t] : spare_.back().columns) bytes += t.bytes().size();
    depth_ = std::min({2 * depth_, kDeepest, std::max(2, static_cast<int>(std::min<std::size_t>(kMostBytes / bytes, kDeepest)))});
    was_full_ = false;
  }
  changed_.wait(lock, [&] { return !ready_.empty() || error_; });
  if (ready_.empty()) std::rethrow_exception(error_);
  into = std::move(ready_.front());
  ready_.pop_front();
  if (2 * static_cast<int>(ready_.size()) <= depth_) changed_.notify_one();
}

void Input::produce() {
  for (;;) {
    Slot slot;
    {
      std::unique_lock lock(mutex_);
      was_full_ |= static_cast<int>(ready_.size()) >= depth_;
      // Full: it sleeps until half of them are used, so that the reader seldom has to wake it.
      if (static_cast<int>(ready_.size()) >= depth_) changed_.wait(lock, [&] { return stop_ || 2 * static_cast<int>(ready_.size()) <= depth_; });
      if (stop_) return;
      if (!spare_.empty()) {
        slot = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    try {
      slot.after = make_(slot.columns);
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    {
      std::lock_guard lock(mutex_);
      ready_.push_back(std::move(slot));
    }
    changed_.notify_one();
  }
}

}  // namespace belfry
