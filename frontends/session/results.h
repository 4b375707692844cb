// What a step is given and gives back: feeds as views of tensors, results that own their memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// Feeds by the name of their input: views of tensors that must live until the step returns; those that are given as they go are kept. Those that are written out one by one must each be an input's;
/// a map, such as rows of a data set, may have columns that the graph has no input for.
class Batch {
 public:
  /// One that is written out.
  struct Feed {
    Feed(std::string input, const HostTensor& value) : name(std::move(input)), tensor(&value) {}
    Feed(std::string input, HostTensor&& value) : name(std::move(input)), kept(std::make_shared<const HostTensor>(std::move(value))), tensor(kept.get()) {}
    std::string name;
    std::shared_ptr<const HostTensor> kept;  ///< null of a tensor that is somebody else's
    const HostTensor* tensor;
  };
  Batch() = default;
  Batch(std::initializer_list<Feed> feeds) : number_(fresh()), written_out_(true) {
    for (const Feed& f : feeds) {
      feeds_[f.name] = f.tensor;
      if (f.kept) kept_.push_back(f.kept);
    }
  }
  Batch(const std::map<std::string, HostTensor>& tensors) : number_(fresh()) {
    for (const auto& [name, tensor] : tensors) feeds_[name] = &tensor;
  }
  Batch(std::map<std::string, HostTensor>&& tensors) : number_(fresh()) {
    auto kept = std::make_shared<const std::map<std::string, HostTensor>>(std::move(tensors));
    for (const auto& [name, tensor] : *kept) feeds_[name] = &tensor;
    kept_.push_back(std::move(kept));
  }
  const std::map<std::string, const HostTensor*>& all() const { return feeds_; }
  bool written_out() const { return written_out_; }
  /// Another tensor for a feed that is there, or a further feed.
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
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace belfry
