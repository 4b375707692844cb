// Checkpoints: all that a training run needs to go on bit for bit, one safetensors file each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include <belfry/frontends/state/safetensors.h>

namespace belfry {

struct CheckpointData {
  TensorMap state;            ///< weights, slots, running statistics
  std::int64_t step = 0;      ///< steps done
  std::int64_t epoch = 0;     ///< where the data stand: rows [0, position) of this epoch are done
  std::int64_t position = 0;
  std::uint64_t seed = 0;
  std::string note;
  TextMap run = {};           ///< what the training notes of itself, by its own names: settings, and where its epoch and its early stop stand
};

/// Written whole or not at all, with a checksum. UserError for negative counts and what write_safetensors refuses.
void write_checkpoint(const std::filesystem::path& path, const CheckpointData& data);
/// UserError for a file that is damaged or no checkpoint, a version that this program does not know, or counts that are none.
CheckpointData read_checkpoint(const std::filesystem::path& path);

/// What `run` of a checkpoint says; nothing for other tensors.
TextMap checkpoint_notes(const std::filesystem::path& path);

/// The file of a step in a folder of checkpoints: "step-00000120.safetensors".
std::filesystem::path checkpoint_path(const std::filesystem::path& dir, std::int64_t step);
/// Whether it is the name of such a file, or of an unfinished one.
bool is_named_as_checkpoint(const std::filesystem::path& path);
/// The checkpoint of the highest step, before step `before`, by name; unfinished files do not count. Nothing where there is none or no folder.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& dir, std::int64_t before = std::numeric_limits<std::int64_t>::max());
/// The step of that checkpoint; -1 where there is none.
std::int64_t latest_checkpoint_step(const std::filesystem::path& dir);
/// Removes all but the `k` checkpoints of the highest steps, and unfinished files of steps up to the highest. UserError for k < 1.
void keep_last(const std::filesystem::path& dir, int k);

}  // namespace belfry
