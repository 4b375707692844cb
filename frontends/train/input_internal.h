// The batches of a training, made ahead by a thread where a step would wait for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <belfry/frontends/data/batches.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// One reader. Batches and their order are the same with and without the thread, which is started where making them takes more than a
/// hundredth of the time; the queue grows while it runs empty that was full.
class Input {
 public:
  using Columns = std::map<std::string, HostTensor>;
  /// The next batch into these tensors; gives the place behind it.
  using Make = std::function<DataPosition(Columns& out)>;
  Input(DataPosition start, Make make) : make_(std::move(make)), position_(start) {}
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// Valid until the next call; what `ahead` gave before it, until the one after that.
  const Columns& next();
  /// What `next` gives next, made already: for work on it while a step runs elsewhere. The position stays.
  const Columns& ahead();
  /// Behind the batch that was given last.
  const DataPosition& position() const { return position_; }
  /// Seconds that `next` took in all.
  double waited() const { return waited_; }
  /// Batches that are made ahead; 0: without a thread.
  int depth() const { return depth_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    Columns columns;
    DataPosition after;
  };
  void take(Slot& into);
  void produce();

  Make make_;
  DataPosition position_;
  Slot current_, ahead_;
  bool has_ahead_ = false;
  double waited_ = 0, made_ = 0, used_ = 0;  ///< made_, used_: seconds of making and between calls, while there is no thread
  int calls_ = 0, depth_ = 0;
  Clock::time_point returned_;

  std::mutex mutex_;  ///< of what follows, and of depth_ while the thread runs
  std::condition_variable changed_;
  std::deque<Slot> ready_;
  std::vector<Slot> spare_;
  bool was_full_ = false, stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace belfry
