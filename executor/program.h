// A plan bound to memory and kernels: built once, immutable; running it is the business of Run.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/collectives.h>
#include <belfry/executor/device/arena.h>
#include <belfry/executor/device/device.h>
#include <belfry/executor/launch.h>
#include <belfry/executor/staging.h>
#include <belfry/executor/state_store.h>
#include <belfry/executor/structural.h>

namespace belfry {

/// Kernel tables by kind of device ("cpu").
using KernelTables = std::map<std::string, KernelTable>;

class Program {
 public:
  /// Allocates the arenas and prepares every kernel of a verified plan. UserError ("unbound: …", or a kernel's own) if it does not fit this machine.
  /// Variables lie in `state`, which programs may share; without it in one of its own. `devices`: those that work by themselves, all of kind gpu among them.
  Program(std::shared_ptr<const PlacedGraph> plan, const KernelTables& kernels, std::shared_ptr<StateStore> state = {}, Devices devices = {});

  const PlacedGraph& plan() const { return *plan_; }
  const BoundPlan& bound() const { return bound_; }
  const KernelTables& kernels() const { return kernels_; }

  /// The launches of every stream, as bound().streams.
  std::vector<std::vector<Launch>>& launches() { return launches_; }
  const std::vector<std::vector<Launch>>& launches() const { return launches_; }
  /// Per host thread its launches in one legal order: (stream, index).
  const std::vector<std::vector<std::pair<int, int>>>& threads() const { return threads_; }

  /// The streams that a thread has of devices that work by themselves; none for most.
  const std::vector<Queue*>& queues(int thread) const { return queues_of_thread_[static_cast<std::size_t>(thread)]; }
  /// One more on the device of a stream that has one.
  std::unique_ptr<Queue> make_lane(int stream, Urgency urgency) const;
  /// By which feeds come to devices that work by themselves; null where none reads any.
  Staging* staging() const { return staging_.get(); }
  /// Null where no kernel of the thread's finds faults.
  FaultWords* faults(int thread) { return faults_[static_cast<std::size_t>(thread)].of.empty() ? nullptr : &faults_[static_cast<std::size_t>(thread)]; }
  /// Of a stream; null where the host computes.
  Queue* queue(int stream) const { return queues_[static_cast<std::size_t>(stream)].get(); }
  const std::vector<Task>& tasks(int thread) const { return tasks_[static_cast<std::size_t>(thread)]; }
  /// What host threads make before a step, unless it was made of the variables as they are.
  OnceLaunches& once() { return once_; }
  StateStore& store() { return *store_; }
  const std::vector<FeedBinding>& feeds() const { return feeds_; }
  const std::vector<ResultBinding>& results() const { return results_; }
  const std::vector<UpdateBinding>& updates() const { return updates_; }
  /// Of what a library sums over GPUs; none for most plans.
  const std::vector<std::shared_ptr<Communicator>>& communicators() const;
  /// Bytes in a memory space, those of the variables among them: as many as the plan says.
  std::int64_t allocated(int space) const { return arenas_[static_cast<std::size_t>(space)].bytes() + state_bytes_[static_cast<std::size_t>(space)]; }
  /// Of a device with memory of its own the host cannot read there.
  std::byte* address(const BufferRef& buffer) const;
  /// A copy of what lies there now.
  HostTensor read(const BufferRef& buffer) const;
  /// The space in which an address lies; -1: in none, as a feed's does.
  int space_of(const std::byte* address) const;

  /// Writes a variable on all its holders, on each what it has of it; UserError for another type or an unknown name.
  void set_state(const std::string& variable, const HostTensor& value);
  /// The value on the first holder, or what the holders have in ranges.
  HostTensor state(const std::string& variable) const;
  /// True if all who hold the whole of it have the same bits.
  bool holders_agree(const std::string& variable) const;
  /// Prepares the kernels of a thread's launches; called on that thread.
  void prepare_thread(int thread);
  /// What a step's kernel is asked to be.
  KernelRequest request(const Step& step) const;
  Device* device_of(int device) const;  ///< null: the host computes

 private:
  Device* any_gpu() const;
  Carriers carriers(const Step& step) const;
  bool reads(int device, const Part& part) const;
  void allocate(), make_queues(), deal_queues(), find_collectives();
  void make_drives(const std::vector<std::vector<int>>& marks);
  void bind_arguments(Launch& launch), prepare(Launch& launch);
  void bind_once(), bind_tasks(), bind_feeds_and_results();
  void bind_faults(int thread);

  std::shared_ptr<const PlacedGraph> plan_;
  const KernelTables& kernels_;
  BoundPlan bound_;
  Devices devices_;
  std::shared_ptr<StateStore> store_;
  std::map<std::pair<int, std::int64_t>, StateStore::Held*> state_at_;    // (space, planned offset) of the variables
  std::vector<std::map<std::int64_t, std::int64_t>> state_before_;        // per space: planned offset → bytes of state before it
  std::vector<std::int64_t> state_bytes_;                                 // per space
  mutable std::vector<Arena> arenas_;                                     // per space, all but the state
  std::vector<Device*> device_of_space_;               // null: the host's memory
  std::vector<std::unique_ptr<Queue>> queues_;         // per stream
  std::unique_ptr<Collectors> collectors_;             // null: the plan has no collectives of a library
  std::map<std::pair<int, int>, std::unique_ptr<Queue>> carriers_;  // of host streams: (stream, space that they read)
  std::vector<std::vector<Queue*>> queues_of_thread_;
  std::vector<std::vector<Drive>> drives_;             // per thread, what its tasks point into
  std::deque<std::string> names_;                      // what drives point into
  std::vector<FaultWords> faults_;                     // per thread
  std::unique_ptr<Staging> staging_;                   // its queues end before the memory that they copy to
  std::vector<std::vector<Launch>> launches_;
  std::vector<std::vector<std::pair<int, int>>> threads_;
  std::vector<std::vector<Task>> tasks_;               // per thread
  OnceLaunches once_;
  std::vector<std::vector<StepWait>> foreign_waits_;   // per thread, what its tasks point into
  std::vector<FeedBinding> feeds_;
  std::vector<ResultBinding> results_;
  std::vector<UpdateBinding> updates_;
};

/// Feeds by the name of the input, as views: they must live until the run returns.
using Feeds = std::map<std::string, const HostTensor*>;

}  // namespace belfry
