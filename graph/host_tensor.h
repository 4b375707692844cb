// A dense row-major tensor in host memory that owns its bytes.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <belfry/graph/error.h>
#include <belfry/graph/shape.h>

namespace belfry {

/// Bytes aligned to 64, the alignment of every buffer here.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t{64}); }
  bool operator==(const AlignedAllocator&) const { return true; }
};

/// Bytes at such an address. They are copied and compared out of line: callers that are built without optimisation would do it one by one.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size);  ///< zeros
  AlignedBytes(const AlignedBytes& other);
  AlignedBytes(AlignedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBytes& operator=(const AlignedBytes& other);  ///< as many stay where they are
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    AlignedBytes taken(std::move(other));  // what was here goes at once
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~AlignedBytes();
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool operator==(const AlignedBytes& other) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class HostTensor {
 public:
  HostTensor() : HostTensor(f32, Extents{0}) {}
  /// Zero-filled.
  HostTensor(DType dtype, Extents shape)
      : type_{dtype, std::move(shape)}, bytes_(static_cast<std::size_t>(type_.bytes())) {}

  template <class T>
  static HostTensor of(Extents shape, std::span<const T> values) {
    HostTensor out(dtype_of<T>(), std::move(shape));
    if (static_cast<std::int64_t>(values.size()) != out.elements())
      throw UserError(std::to_string(values.size()) + " values for the shape " + to_string(std::span(out.shape())));
    if (!values.empty()) std::memcpy(out.raw(), values.data(), values.size_bytes());
    return out;
  }
  template <class T>
  static HostTensor of(Extents shape, std::initializer_list<T> values) { return of<T>(std::move(shape), std::span<const T>(values.begin(), values.size())); }
  template <class T>
  static HostTensor scalar(T value) { return of<T>({}, {value}); }

  const LocalType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Extents& shape() const { return type_.shape; }
  std::int64_t elements() const { return type_.elements(); }

  std::byte* raw() { return bytes_.data(); }
  const std::byte* raw() const { return bytes_.data(); }
  std::span<const std::byte> bytes() const { return {bytes_.data(), bytes_.size()}; }

  /// The elements; UserError if the tensor holds another dtype.
  template <class T>
  std::span<T> data() & { check<T>(); return {reinterpret_cast<T*>(raw()), static_cast<std::size_t>(elements())}; }
  template <class T>
  std::span<const T> data() const& { check<T>(); return {reinterpret_cast<const T*>(raw()), static_cast<std::size_t>(elements())}; }
  template <class T>
  std::span<const T> data() const&& = delete;  // it would view what is gone: keep the tensor, or take values()
  /// A copy of the elements; UserError if the tensor holds another dtype.
  template <class T>
  std::vector<T> values() const { return {data<T>().begin(), data<T>().end()}; }
  /// The only element; UserError if there are others.
  template <class T>
  T item() const {
    if (elements() != 1) throw UserError("item() of a tensor of shape " + to_string(std::span(shape())));
    return data<T>()[0];
  }

  bool operator==(const HostTensor& other) const { return type_ == other.type_ && bytes_ == other.bytes_; }

 private:
  template <class T>
  void check() const {
    if (dtype() != dtype_of<T>())
      throw UserError("a tensor of " + std::string(name_of(dtype())) + " was read as " + std::string(name_of(dtype_of<T>())));
  }
  LocalType type_;
  AlignedBytes bytes_;
};

/// The values in another dtype; floats to integers cut towards zero.
HostTensor converted(const HostTensor& tensor, DType dtype);
/// `count` places from `first` on along an axis, all of which the tensor has.
HostTensor part_along(const HostTensor& tensor, int axis, std::int64_t first, std::int64_t count);

}  // namespace belfry
