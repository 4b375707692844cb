// The one place that calls cuDNN: graphs of operations as plain data, engines found for them, launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <belfry/executor/leeway.h>
#include <belfry/graph/dtype.h>
#include <belfry/graph/shape.h>

namespace belfry {
class CudaToolkit;
}

namespace belfry::cudnn {

/// Strides in elements. Pictures and filters are listed as cuDNN wants them (n, c, h, w and out, in, h, w), wherever their elements lie.
struct Tensor {
  DType dtype = f32;
  Extents dims, strides;
  bool inner = false;                ///< made and read inside its graph: it has no memory
  std::optional<float> value = {};   ///< a scalar that every run is given
};

enum class Kind { conv, conv_input_gradient, conv_filter_gradient, matmul, add, sub, mul, div, sqrt, reciprocal, identity, exp, log, index, at_least, select, max_over, sum_over, reshape,
                  max_pool, avg_pool, avg_pool_gradient, batch_norm, batch_norm_gradient };

/// Over height and width. Convolutions take the size from the filter; pools know no dilations.
struct Window {
  Extents size, strides, before, after, dilations;
};

/// Its tensors by number, in this order: convolutions x, filter, y (dx and dfilter in the places of x and filter); matmul (…, m, k), (…, k, n), (…, m, n); add … div a, b, y; sqrt … log x, y;
/// index x, y (how far an element lies along `axis`, i32); at_least a, b, y (boolean a ≥ b); select mask, a, b, y (a where the mask is); max_over, sum_over x, y (along the axes that y has one
/// of); reshape x, y (the same memory by other dims and strides); pools x, y (the gradient dy, dx); batch_norm x, gamma, beta, epsilon, zeros, zeros, one (how much of the running statistics is new), y, mean, inverse deviation, running mean,
/// running variance; batch_norm_gradient x, mean, inverse deviation, gamma, dy, dx, dgamma, dbeta.
struct Operation {
  Kind kind;
  std::vector<std::size_t> tensors;
  Window window = {};
  std::int64_t axis = 0;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  std::int64_t least_scratch_bytes = 0;  ///< an engine that wants fewer does not repeat its bits, though no note says so
  std::size_t add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return tensors.size() - 1;
  }
};

/// Where engines are made for: the device whose context is current on this thread, or one that a text describes (cuDNN's JSON), where nothing can run.
class Target {
 public:
  virtual ~Target() = default;
};
/// One per thread and context; it lives as long as somebody holds it. DeviceError where cuDNN cannot be used.
std::shared_ptr<Target> current_target(CudaToolkit& toolkit);
std::shared_ptr<Target> described_target(CudaToolkit& toolkit, const std::string& json);

/// What is asked of an engine.
struct Wanted {
  std::int64_t scratch_bytes = 0;
  Leeway leeway = {};
  std::string engine = {};           ///< this one alone, by its name
};

struct EngineFacts {
  std::string name;                  ///< "eng34{k2=4,k6=3}": its number, and how it is set
  std::int64_t scratch_bytes = 0;
  bool deterministic = true, tensor_cores = false, rounds_inputs = false, winograd = false, compiles = false, keeps_nan = false;
};

/// Belongs to the thread that made it.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineFacts& facts() const = 0;
  /// An address per tensor of the graph, null for those without memory. Allocates nothing and waits for nothing.
  virtual void run(std::span<const void* const> at, void* scratch, void* stream) = 0;
};

/// The first that fits, in the order of cuDNN's own forecast, or the one that is wanted. DeviceError that tells what the others lack where none does.
std::unique_ptr<Engine> find(const std::shared_ptr<Target>& target, const Graph& graph, const Wanted& wanted);
/// The first ones that fit, at most so many, in the same order.
std::vector<EngineFacts> fitting(const std::shared_ptr<Target>& target, const Graph& graph, const Wanted& wanted, std::size_t most);
/// All that can be made, in the same order.
std::vector<EngineFacts> all(const std::shared_ptr<Target>& target, const Graph& graph);

/// Whether Belfry was built with cuDNN's headers; without them all of the above throw.
bool built();

}  // namespace belfry::cudnn
