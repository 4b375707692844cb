#include <belfry/graph/host_tensor.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace belfry {

namespace {

std::byte* room_for(std::size_t size) {
  if (size > PTRDIFF_MAX) throw std::length_error("a tensor of more than 2^63 bytes");
  return size ? AlignedAllocator<std::byte>().allocate(size) : nullptr;
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size) : data_(room_for(size)), size_(size) {
  if (size_) std::memset(data_, 0, size_);
}
AlignedBytes::AlignedBytes(const AlignedBytes& other) : data_(room_for(other.size_)), size_(other.size_) {
  if (size_) std::memcpy(data_, other.data_, size_);
}
AlignedBytes& AlignedBytes::operator=(const AlignedBytes& other) {
  if (size_ != other.size_) return *this = AlignedBytes(other);
  if (size_ && this != &other) std::memcpy(data_, other.data_, size_);
  return *this;
}
AlignedBytes::~AlignedBytes() {
  if (data_) AlignedAllocator<std::byte>().deallocate(data_, size_);
}
bool AlignedBytes::operator==(const AlignedBytes& other) const { return size_ == other.size_ && (!size_ || std::memcmp(data_, other.data_, size_) == 0); }

HostTensor converted(const HostTensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  HostTensor out(dtype, tensor.shape());
  visit_stored(tensor.dtype(), [&]<class From>() {
    auto from = tensor.data<From>();
    visit_stored(dtype, [&]<class To>() {
      std::transform(from.begin(), from.end(), out.data<To>().begin(), [](From x) { return static_cast<To>(x); });
    });
  });
  return out;
}

HostTensor part_along(const HostTensor& tensor, int axis, std::int64_t first, std::int64_t count) {
  Extents shape = tensor.shape();
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t outer = elements(Extents(shape.begin(), shape.begin() + axis)), inner = elements(Extents(shape.begin() + axis + 1, shape.end())), n = shape[at];
  shape[at] = count;
  HostTensor out(tensor.dtype(), shape);
  const auto run = static_cast<std::size_t>(count * inner) * size_of(tensor.dtype());
  for (std::int64_t o = 0; o < outer; ++o)
    if (run) std::memcpy(out.raw() + static_cast<std::size_t>(o) * run, tensor.raw() + static_cast<std::size_t>((o * n + first) * inner) * size_of(tensor.dtype()), run);
  return out;
}

}  // namespace belfry
