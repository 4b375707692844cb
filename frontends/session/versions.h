// The store of training by loops: versions of the variables, who computes from which, and which gradients make the next one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/host_tensor.h>

namespace belfry {

using NamedTensors = std::map<std::string, HostTensor>;

/// Who is let in, and what is joined.
struct VersionRules {
  int workers = 1;
  int staleness = 0;       ///< without backup workers: the most updates between a gradient's pull and its own
  int backup = 0;          ///< not 0: an update takes the first (workers - backup) gradients of the newest version
  std::int64_t steps = 0;  ///< versions that are made; then nobody is let in
};

/// A consistent copy of the variables, and a mini-batch to compute gradients of.
struct Pulled {
  std::int64_t version = 0, draw = 0;  ///< draw: mini-batches that were handed out before
  std::shared_ptr<const NamedTensors> state;
  NamedTensors batch;
};

struct Pushed {
  int worker = 0;
  std::int64_t version = 0, draw = 0;  ///< as they were pulled
  std::int64_t rows = 0;
  NamedTensors values;
};

/// One mutex, and waits that end when another loop has failed. Workers pull and push, one server takes and commits.
class VersionedStore {
 public:
  /// The next mini-batch; none: the data are at their end. Called by one worker at a time.
  using Source = std::function<std::optional<NamedTensors>()>;
  VersionedStore(const VersionRules& rules, std::shared_ptr<const NamedTensors> first, Source source);

  /// Waits until the worker is let in. Asynchronous: while less than staleness + 1 are between pull and commit. With backup
  /// workers: at a version that it has not had. None: there is nothing more to do.
  std::optional<Pulled> pull(int worker);
  void push(Pushed pushed);
  /// Waits for what makes the next version, in the workers' order. Asynchronous: the first gradient that leaves all others time
  /// to be applied within the bound, so that none is ever dropped. Empty: all is done.
  std::vector<Pushed> take();
  /// What was taken is in the variables now.
  void commit(std::shared_ptr<const NamedTensors> next);
  /// Ends all waits; the first error is kept.
  void fail(std::exception_ptr error);
  std::exception_ptr error() const;
  std::int64_t version() const;
  std::int64_t dropped() const;

 private:
  struct Flight {
    std::int64_t draw = 0, version = 0;
  };
  bool lets_in(int worker) const;
  bool over() const;
  bool in_time_without(const Pushed& p) const;
  bool choose(std::vector<std::size_t>& chosen);
  void drop_late();
  void land(const Pushed& p);

  const VersionRules rules_;
  const Source source_;
  mutable std::mutex mutex_;
  std::condition_variable may_pull_, may_take_;
  std::shared_ptr<const NamedTensors> state_;
  std::int64_t version_ = 0, draws_ = 0, dropped_ = 0;
  bool ended_ = false;                  // the data are at their end
  std::vector<Flight> flight_;          // pulled, and neither taken and committed nor dropped
  std::vector<std::int64_t> pulled_;    // per worker its newest version; -1: none
  std::vector<Pushed> arrived_;
  std::vector<std::int64_t> taken_;     // draws that the next commit has applied
  std::exception_ptr error_;
};

}  // namespace belfry
