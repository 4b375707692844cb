#include <belfry/graph/host_tensor.h>

#include <algorithm>

namespace belfry {

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
