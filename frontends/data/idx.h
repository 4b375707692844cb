// The IDX format of MNIST: one array a file, big-endian, plain or gzipped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include <belfry/graph/host_tensor.h>

namespace belfry {

/// The array of an IDX file of u8, i32, f32 or f64 and any rank from 1; gzip is known by its first bytes, not by the name.
/// UserError with file and byte (of the unpacked text) for another magic, other types, and bytes missing or left over.
HostTensor read_idx(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
HostTensor parse_idx(std::span<const std::byte> bytes, const std::string& name);

/// Written plain, under another name until it is whole. UserError for i64, bool, scalars and sizes of 2^32 or more.
void write_idx(const std::filesystem::path& path, const HostTensor& tensor);

}  // namespace belfry
