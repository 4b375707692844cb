// What a step is given and gives back: feeds as views of tensors, results that own their memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include <belfry/graph/graph.h>
#include <belfry/graph/host_tensor.h>

namespace belfry {

/// What a program is built for.
enum class Mode { step, run, infer };

class Results {
 public:
  Results() = default;
  explicit Results(std::map<std::string, HostTensor> tensors) : tensors_(std::move(tensors)) {}
  /// UserError with the fetched names and the nearest if there is none.
  const HostTensor& operator[](const std::string& name) const&;
  HostTensor operator[](const std::string& name) && { return std::as_const(*this)[name]; }  ///< of a result that goes: a tensor that stays
  /// The only element; UserError for another dtype or more elements.
  template <class T>
  T item(const std::string& name) const { return checked(name, dtype_of<T>(), true).template item<T>(); }
  template <class T>
  std::span<const T> data(const std::string& name) const& { return checked(name, dtype_of<T>(), false).template data<T>(); }
  template <class T>
  std::span<const T> data(const std::string& name) && = delete;  // it would view what is gone: keep the results
  const std::map<std::string, HostTensor>& all() const& { return tensors_; }
  std::map<std::string, HostTensor> all() && { return std::move(tensors_); }

 private:
  /// UserError that names the value where it is of another dtype, or is to be one element and is not.
  const HostTensor& checked(const std::string& name, DType dtype, bool one) const;
  std::map<std::string, HostTensor> tensors_;
};

/// Feeds by the name of their input: views that must live until the step returns. Those that are written out one by one must each be an input's;
/// a map, such as rows of a data set, may have columns that the graph has no input for.
class Batch {
 public:
  Batch() = default;
  Batch(std::initializer_list<std::pair<std::string, const HostTensor&>> feeds) : number_(fresh()), written_out_(true) {
    for (const auto& [name, tensor] : feeds) feeds_[name] = &tensor;
  }
  Batch(const std::map<std::string, HostTensor>& tensors) : number_(fresh()) {
    for (const auto& [name, tensor] : tensors) feeds_[name] = &tensor;
  }
  const std::map<std::string, const HostTensor*>& all() const { return feeds_; }
  bool written_out() const { return written_out_; }
  /// Another tensor for a feed that is there.
  void replace(const std::string& name, const HostTensor& tensor) { feeds_[name] = &tensor; }
  /// The same of copies, of no other batch; 0 of one without feeds.
  std::uint64_t number() const { return number_; }

 private:
  static std::uint64_t fresh() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
  std::uint64_t number_ = 0;
  bool written_out_ = false;
  std::map<std::string, const HostTensor*> feeds_;
};

}  // namespace belfry
