// The safetensors format: named tensors and texts in one file, read strictly.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <belfry/graph/host_tensor.h>

namespace belfry {

using TensorMap = std::map<std::string, HostTensor>;
using TextMap = std::map<std::string, std::string>;

/// A tensor of a type that is not read, which one can do without.
struct TypeNotRead : UserError {
  using UserError::UserError;
};
/// Whether a tensor of this name is asked for: others are passed over where their type is not read. Empty: all are.
using Wanted = std::function<bool(const std::string&)>;

/// The metadata's text of this name is a checksum of all else in the file, which is checked as it is read. Checkpoints have one.
inline constexpr const char* kChecksumKey = "xxh3-128";
/// That text: in hex the XXH3-128 of the other metadata and of the tensors' names, types and bytes.
std::string checksum_of(const TensorMap& tensors, const TextMap& metadata);

/// All tensors of a file, of F32, F64, F16, BF16, I32, I64, U8 and BOOL, and as i64 those of I8, I16, U16, U32 and U64; the `__metadata__` texts go to `metadata` if given,
/// all but the checksum, which is of what the file had.
/// UserError with file, tensor and byte for anything that is not a whole, gapless safetensors file of at most 100,000,000 header bytes,
/// and where it has another checksum than its metadata say.
TensorMap read_safetensors(const std::filesystem::path& path, TextMap* metadata = nullptr, const Wanted& wanted = {});
/// The same from memory; `name` stands for the file in errors.
TensorMap parse_safetensors(std::span<const std::byte> bytes, const std::string& name, TextMap* metadata = nullptr, const Wanted& wanted = {});

/// Written whole or not at all. Tensors lie by element size, largest first, then by name, the first at a multiple of 64 bytes: all are aligned.
/// UserError for names or texts that are no UTF-8, and for a tensor named `__metadata__`.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const TextMap& metadata = {});
std::vector<std::byte> safetensors_bytes(const TensorMap& tensors, const TextMap& metadata = {});

}  // namespace belfry
