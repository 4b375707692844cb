// numpy's .npy and .npz formats, read strictly.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <belfry/frontends/state/safetensors.h>

namespace belfry {

/// A .npy of version 1 to 3, little-endian f2, f4, f8, i4, i8, u1 or b1; i1, i2, u2, u4 and u8 are read as i64. Fortran order is brought into C order.
/// UserError with file and byte for anything else (TypeNotRead for a type), for bytes missing or left over, and for what i64 does not hold.
HostTensor read_npy(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
HostTensor parse_npy(std::span<const std::byte> bytes, const std::string& name);
/// Version 1, C order, the first element at a multiple of 64 bytes (version 2 where the shape takes more than 65,535 characters).
void write_npy(const std::filesystem::path& path, const HostTensor& tensor);
std::vector<std::byte> npy_bytes(const HostTensor& tensor);
/// What stands in that file before the elements. UserError for bf16, which numpy has not.
std::string npy_head(const HostTensor& tensor);

/// The members of a .npz, stored or deflated, zip64 too, without their ".npy".
/// UserError with file, member and byte for what is no whole zip archive of .npy members, is encrypted or packed otherwise.
TensorMap read_npz(const std::filesystem::path& path, const Wanted& wanted = {});
TensorMap parse_npz(std::span<const std::byte> bytes, const std::string& name, const Wanted& wanted = {});
/// Stored members in the order of their names; the same tensors give the same bytes. UserError past 4 GiB or 65,534 members.
void write_npz(const std::filesystem::path& path, const TensorMap& tensors);
std::vector<std::byte> npz_bytes(const TensorMap& tensors);

}  // namespace belfry
