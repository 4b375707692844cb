// Training over a data set: epochs of global batches, metrics, validation, checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/batches.h>
#include <belfry/frontends/session/loops.h>
#include <belfry/frontends/session/session.h>
#include <belfry/frontends/train/averages.h>
#include <belfry/frontends/train/checkpoints.h>
#include <belfry/graph/error.h>

namespace belfry {

/// Means by name, of losses and metrics: over rows, or by the metric "name/weight" where the graph has one, which is not given itself.
class Metrics : public std::map<std::string, double> {
 public:
  using std::map<std::string, double>::map;
  /// UserError with the names that are there and the nearest.
  double at(const std::string& name) const;
  double& operator[](const std::string& name) & { return std::map<std::string, double>::operator[](name); }
  double operator[](const std::string& name) && { return at(name); }  ///< a 0 that is made for an unknown name would pass for a result
};

struct Progress {
  std::int64_t epoch = 0, epochs = 0;       ///< of the session: counted from 0, and the one at which this training ends
  std::int64_t batch = 0, batches = 0;      ///< finished in this epoch
  std::int64_t rows = 0;                    ///< finished in this epoch
  std::int64_t step = 0;                    ///< of the session: steps before this training count
  double seconds = 0;                       ///< since the epoch began; without the first step, which builds the program, unless the epoch has no other
  double rows_per_second = 0;
  double waited = 0;                        ///< seconds of this epoch in which steps waited for their batch
  int ahead = 0;                            ///< batches that a thread makes ahead; 0: each is made when it is asked for, since that costs next to nothing
  Metrics metrics;                          ///< of the epoch so far
  Metrics last;                             ///< of the last batch alone
  std::optional<double> learning_rate = {}; ///< of the last batch; none where nobody asked for it, or a given plan does not fetch it
  std::optional<LoopCounts> loops = {};     ///< of this training so far, where it is by loops; `last` then has the "staleness" of the update
};

struct FitOptions {
  std::int64_t batch = 32;                  ///< global: the towers share it; where workers train by loops, each takes a batch of its share
  int epochs = 1;                           ///< from here on; one that was begun is the first of them
  bool resumed = false;                     ///< `epochs` and `steps` are of the whole run: those before the checkpoint count
  TextMap notes = {};                       ///< what `resume` found in the checkpoint: sums of its epoch, its best so far
  std::int64_t steps = 0;                   ///< not 0: so many from here on, across as many epochs as they take
  std::function<bool()> ends = {};          ///< asked after each step and each epoch, by loops from any thread: whether training ends there, with a checkpoint, and without validation where that is within an epoch
  std::optional<std::uint64_t> shuffle = {};  ///< a seed; none: rows in file order
  LastBatch last_batch = LastBatch::shorter;  ///< what becomes of the rows that an epoch's whole batches leave over
  const DataSet* validation = nullptr;      ///< evaluated after each epoch, as val_<name>
  bool averages = false;                    ///< validation with the moving averages of the variables
  std::function<void(const Progress&)> on_batch = {};
  std::function<void(const Progress&)> on_epoch = {};
  std::function<void(const std::string&)> notice = {};  ///< told in a line what training finds or decides by itself
  std::string checkpoints = {};             ///< a folder, made if it is not there; empty: none
  std::int64_t checkpoint_every = 0;        ///< steps, and at the end; 0: at the end of each epoch
  int keep = 3;
  TextMap told = {};                        ///< further settings that all starts of one run have in common, by name: what was done to its data
  int patience = 0;                         ///< not 0: training ends where `monitor` was not better for so many epochs; then the session has the best ones' variables
  std::string monitor = {};                 ///< an epoch's metric, "max:" or "min:" before it where that is not known; empty: the first loss, of validation if there is one
  bool learning_rate = false;               ///< Progress has it: each step fetches it, as it does for a log
  std::string log = {};                     ///< a file of a line of JSON for each step and each epoch; a session that has taken steps before goes on in it
  std::string tensorboard = {};             ///< a folder for event files: train/ has a point for each step, validation/ for each epoch
};

struct EpochResult {
  Metrics metrics;
  double seconds = 0;
  std::optional<LoopCounts> loops = {};     ///< of all epochs until then
};
using History = std::vector<EpochResult>;

/// A checkpoint that another run wrote.
struct OtherRun : UserError {
  using UserError::UserError;
};

/// What `fit` fetches of a step: losses, metrics and, where something reads it, "learning_rate"; of a plan that was given only those of the last two that it fetches.
/// UserError, as of `fit` and `evaluate`, for a metric that is no scalar, or hides a loss by its name.
std::vector<std::string> fit_fetches(const Session& session, const FitOptions& options = {});
/// Rows that are handed out at a time: those of a step, or of one of the workers that train by loops. UserError where they cannot share a batch evenly.
std::int64_t rows_handed_out(const Session& session, std::int64_t batch);
/// Puts the session and the options where a checkpoint of the same training stands: `fit` goes on bit for bit. Tells the notice where this plan computes otherwise.
void resume(Session& session, const Checkpoint& checkpoint, FitOptions& options);
/// From the latest of `options.checkpoints`, whose file it gives; nothing where there is none. So a training that was killed goes on when it is
/// started again. OtherRun where another one wrote it; UserError with the one before it where it is damaged,
/// and where the folder cannot be listed.
std::optional<std::filesystem::path> resume_latest(Session& session, const DataSet& data, FitOptions& options);
/// What a checkpoint's run has otherwise than this one: "batch: 32 there, 64 here". Devices are no part of a run.
std::vector<std::string> differences(const Checkpoint& checkpoint, const Session& session, const DataSet& data, const FitOptions& options);
/// Trains from the session's data position on. UserError for columns that do not fit the inputs, those to validate on too, for options below their least, for a
/// file in the place of the log that is none, and where the loss is no number.
History fit(Session& session, const DataSet& data, const FitOptions& options = {});
/// {"epoch", "steps", "epoch_seconds", "input_seconds", "rows_per_second", losses and metrics} of an epoch that has ended: what its line in the log says of it.
std::string epoch_line(const Progress& p);
enum class LogLines { all, epochs, charts };  ///< those of a log, what `epoch_line` gives, or a log's with TensorBoard's charts
/// The first of the names under which these lines say something of themselves, so that no metric may have it; empty where there is none.
std::string name_taken(const std::vector<std::string>& names, LogLines lines);
/// "loss 'x'" or "metric 'x'": as which of the two the graph reports it.
std::string metric_or_loss(const Graph& graph, const std::string& name);
inline constexpr std::int64_t kRowsEvaluated = 256;  ///< at a time; `fit` takes those of its batch where they are fewer
/// Losses and metrics of the graph for inference, as means over all batches. Under an AveragesInPlace with the moving averages of the variables.
Metrics evaluate(Session& session, const DataSet& data, std::int64_t batch = kRowsEvaluated);
/// The same over several sets together.
Metrics evaluate(Session& session, const std::vector<const DataSet*>& parts, std::int64_t batch = kRowsEvaluated);

}  // namespace belfry
