// What the verbs train and evaluate share: arguments, data, and the folder of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/data/data_folder.h>
#include <belfry/frontends/data/distort.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/run_folder.h>

namespace belfry {

struct TrainArguments {
  std::string source, data, out, checkpoints, resume, state, log, split = "test";
  std::string monitor, tensorboard, distort, rescale, shard;
  std::int64_t batch = 0, steps = 0, checkpoint_every = 0;
  std::vector<std::string> classes, features;  ///< that the net has learnt from
  std::optional<Rescale> trained_on = {};  ///< of the pixels, where the source is a run that says so
  double hold_out = 0;
  int epochs = 5, keep = 3, patience = 0;
  bool shuffle = false, no_shuffle = false, full_batches = false, drop_last = false, averages = false, antialias = false, quiet = false, verbose = false, overwrite = false, json = false, evaluates = false;
  PlacementArguments placement;
};

/// "1/127.5,-1": scale and offset of pixels; or "standardise".
Rescale rescale_of(const std::string& text);
bool goes_in_as_is(const Rescale& how);
/// The same text, of these.
std::string rescale_text(const Rescale& how);
/// What the graph's inputs and the arguments ask of the data: photos of the size that it takes, windows of text of its length.
DataWanted data_wanted(const Session& session, const TrainArguments& o);
/// Whether these are pictures of f32 in which all values are bytes of files, 0 to 255.
bool holds_bytes(const HostTensor& pictures);
/// The same of its column "image".
bool holds_bytes(const DataSet& data);
/// Says how many files lie in class folders that are none of the pictures which are read.
void say_passed_over(const std::string& data);
/// The data themselves. Says so where pictures go in as bytes are, and how many rows are held out. UserError for labels that the net has no class for.
Splits splits_for(const Session& session, const TrainArguments& o);
/// Whether rows to train on come in another order in each epoch: as was asked, and where nobody did photos do, which lie class by class. Says so
/// there, and where rows that are sorted by their labels stay so.
bool shuffles(const TrainArguments& o, const DataSet& train);

/// Classes and features of the run that is the source; to evaluate besides what is not said of pixels, averages, and on the run's own data of the part that is held out.
void take_from_run(TrainArguments& o, bool to_evaluate);
/// Where none are known, classes and features that the variables in a file were trained on: of the run that it is part of, else what a checkpoint says.
void take_names(std::vector<std::string>& classes, std::vector<std::string>& features, const std::filesystem::path& weights);
/// What a checkpoint says of them, under these keys.
inline constexpr const char* kClassesTold = "names of the classes";
inline constexpr const char* kFeaturesTold = "features";
std::string names_told(const std::vector<std::string>& names);
/// UserError where --out is the folder of a run that this one neither goes on with nor replaces, or --overwrite would go on from another run's checkpoints;
/// and where what is written would lie among the data.
void refuse_run_there(const TrainArguments& o);
/// Whether --out has the run that this one goes on with.
bool goes_on_there(const TrainArguments& o);
/// UserError where what is read, or a file that is no run's, would be written over.
void refuse_written_over(const TrainArguments& o, const Source& source);
/// What the run was told, for `belfry runs`, its graph, and what a later `predict` must know of classes and pixels.
RunFacts write_run(Session& session, const TrainArguments& o, const Splits& data, const FitOptions& options, const std::vector<std::string>& fetches);
/// Puts back what a training set aside that was killed before its first step: see BegunRun. Says so.
void put_back_replaced(const TrainArguments& o);
/// A run that begins in its folder. What --overwrite replaces, the run's checkpoints too, is set aside until the first step is done: where that fails
/// all is put back, and what the new run wrote taken away, so that nothing stands in the way of the command that is put right. Where it is killed the next start does so.
class BegunRun {
 public:
  BegunRun() = default;
  ~BegunRun();
  BegunRun(const BegunRun&) = delete;
  void begin(const TrainArguments& o);
  /// From now on what was replaced is gone.
  void stepped();

 private:
  void set_aside(const std::string& folder, const std::vector<std::filesystem::path>& files);
  std::string folder_;                        ///< empty: nothing there is the new run's
  std::vector<std::filesystem::path> aside_;  ///< folders beside what they hold
  bool had_graph_ = false, replaces_ = false, done_ = false;
};
/// Plan, variables and the trace of a step, in the folder, which says then that the run has ended.
void write_results(Session& session, const DataSet& data, const std::string& out, RunFacts run, std::int64_t batch, const std::vector<std::string>& fetches);

}  // namespace belfry
