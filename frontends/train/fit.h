// Training over a data set: epochs of global batches, metrics, validation, checkpoints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/session/loops.h>
#include <belfry/frontends/session/session.h>
#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/train/averages.h>

namespace belfry {

/// Means by name, of losses and metrics: over rows, or by the metric "name/weight" where the graph has one, which is not given itself.
using Metrics = std::map<std::string, double>;

struct Progress {
  std::int64_t epoch = 0, epochs = 0;       ///< of the session: counted from 0, and the one at which this training ends
  std::int64_t batch = 0, batches = 0;      ///< finished in this epoch
  std::int64_t rows = 0;                    ///< finished in this epoch
  std::int64_t step = 0;                    ///< of the session: steps before this training count
  double seconds = 0;                       ///< since the epoch began, the first step apart
  double rows_per_second = 0;
  Metrics metrics;                          ///< of the epoch so far
  Metrics last;                             ///< of the last batch alone
  std::optional<double> learning_rate = {}; ///< of the last batch; none where nobody asked for it, or a given plan does not fetch it
  std::optional<LoopCounts> loops = {};     ///< of this training so far, where it is by loops; `last` then has the "staleness" of the update
};

struct FitOptions {
  std::int64_t batch = 32;                  ///< global: the towers share it; where workers train by loops, each takes a batch of its share
  int epochs = 1;                           ///< from here on; one that was begun is the first of them
  bool resumed = false;                     ///< `epochs` is of the whole run: those before the checkpoint count
  std::int64_t steps = 0;                   ///< not 0: so many from here on, across as many epochs as they take
  std::optional<std::uint64_t> shuffle = {};  ///< a seed; none: rows in file order
  bool full_batches = false;                ///< no short batch at the end of an epoch: it runs on into the next
  const DataSet* validation = nullptr;      ///< evaluated after each epoch, as val_<name>
  bool averages = false;                    ///< validation with the moving averages of the variables
  std::function<void(const Progress&)> on_batch = {};
  std::function<void(const Progress&)> on_epoch = {};
  std::string checkpoints = {};             ///< a folder, made if it is not there; empty: none
  std::int64_t checkpoint_every = 0;        ///< steps; 0: at the end of each epoch
  int keep = 3;
  bool learning_rate = false;               ///< Progress has it: each step fetches it, as it does for a log
  std::string log = {};                     ///< a file of a line of JSON for each step and each epoch; a session that has taken steps before goes on in it
};

struct EpochResult {
  Metrics metrics;
  double seconds = 0;
  std::optional<LoopCounts> loops = {};     ///< of all epochs until then
};
using History = std::vector<EpochResult>;

/// What `fit` fetches of a step: losses, metrics and, where something reads it, "learning_rate"; of a plan that was given only those of the last two that it fetches.
std::vector<std::string> fit_fetches(const Session& session, const FitOptions& options = {});
/// Rows that are handed out at a time: those of a step, or of one of the workers that train by loops. UserError where they cannot share a batch evenly.
std::int64_t rows_handed_out(const Session& session, std::int64_t batch);
/// Trains from the session's data position on. UserError for columns that do not fit the inputs, and where the loss is no number.
History fit(Session& session, const DataSet& data, const FitOptions& options = {});
/// Losses and metrics of the graph for inference, as means over all batches. Under an AveragesInPlace with the moving averages of the variables.
Metrics evaluate(Session& session, const DataSet& data, std::int64_t batch = 256);
/// The same over several sets together.
Metrics evaluate(Session& session, const std::vector<const DataSet*>& parts, std::int64_t batch = 256);

/// Everything that a run needs to go on bit for bit, on other devices too.
class Checkpoint {
 public:
  /// State, step and seed of the session, data position of the last finished step.
  static Checkpoint of(Session& session);
  static Checkpoint load(const std::string& path);
  void save(const std::string& path) const;
  /// Puts the session where it was.
  void restore(Session& session) const;
  const CheckpointData& data() const { return data_; }
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

 private:
  explicit Checkpoint(CheckpointData data) : data_(std::move(data)) {}
  CheckpointData data_;
};

}  // namespace belfry
