// Steps of a kernel of cuDNN, as plain data: what runs in its sequence, and where its tensors lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/code_internal.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>
#include <belfry/ops/cuda/cudnn_internal.h>

namespace belfry::cudnn {

/// Where a tensor lies: an input or output by number, so many bytes past its beginning, or bytes of the scratch. Inner tensors and scalars lie nowhere.
struct Place {
  enum Where { nowhere, input, output, scratch } where = nowhere;
  std::int64_t at = 0, past = 0;
};

struct Run {
  Graph graph;
  std::vector<Place> places = {};  ///< per tensor
  std::size_t add(Tensor tensor, Place place = {}) {
    places.push_back(place);
    return graph.add(std::move(tensor));
  }
};
/// A matrix (rows, columns) to (columns, rows), which may be of another dtype.
struct Transpose {
  std::int64_t rows = 0, columns = 0;
  Place from, to;
  DType dtype = f32, made = f32;
};
struct Cast {
  std::int64_t count = 0;
  DType dtype = f32, made = f32;
  Place from, to;
};
/// A product by cuBLASLt.
struct Multiply {
  cublas_lt::Product product;
  Place a, b, y, bias = {}, added = {};  ///< bias, added: nowhere, but where the product ends with a bias, or is added to a matrix other than y
};
/// The pixels of each window, tap by tap, as a row of a matrix (images · y's height · y's width, taps · channels) of f32, zeros where a tap lies beyond x; or `back`: for each pixel of x the sum of what the rows have for it, tap by tap.
struct Unfold {
  Extents x, y;  ///< (images, height, width, channels)
  Window window;
  bool back = false;
  Place from, to;
};
std::unique_ptr<Prepared> unfold_kernel(GpuCode& code, const Unfold& unfold);
struct Fill {
  float value = 0;
  std::int64_t count = 0;
  Place to;
};

}  // namespace belfry::cudnn
